"""The scikit-learn face: scikit-learn's own contract, and what we say beyond it."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from torch import nn

from falconcal import Bounds, Examples, Falcon, FalconClassifier
from falconcal.errors import UserError
from falconcal.integrations.estimator_arrays import hold_out
from falconcal.models import MLP, LeNet
from falconcal.recalibration import Temperature
from tests.helpers.small_data import CLASSES, small_network, stripes

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
Array = numpy.ndarray
Check = Callable[[Any], None]


ANOTHER_ORDER = "a weight of 0 leaves an example's place in the batches, so others meet in a batch"
NOT_EXACT = {
    "check_sample_weight_equivalence_on_dense_data": ANOTHER_ORDER,
    "check_sample_weight_equivalence_on_sparse_data": ANOTHER_ORDER,
}


def checks() -> list[Any]:
    return [
        pytest.param(estimator, check, id=check.func.__name__)
        for estimator, check in estimator_checks_generator(FalconClassifier())
        if check.func.__name__ not in NOT_EXACT
    ]


@pytest.mark.end_to_end
@pytest.mark.parametrize(("estimator", "check"), checks())
def test_scikit_learns_contract_holds(estimator: FalconClassifier, check: Check) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def flowers() -> tuple[Array, Array]:
    data = load_iris()
    return data.data, data.target_names[data.target]  # (150, 4), (150,) of strings


@pytest.fixture(scope="module")
def fitted(flowers: tuple[Array, Array]) -> FalconClassifier:
    return FalconClassifier(epochs=10, random_state=0).fit(*flowers)


def square_network(shape: tuple[int, ...], classes: int) -> nn.Module:
    assert shape == (1, 28, 28)
    return small_network(classes)


def linear_network(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(numpy.prod(shape)), classes))


def test_it_learns_flowers_by_name(fitted: FalconClassifier, flowers: tuple[Array, Array]) -> None:
    assert fitted.score(*flowers) > 0.9
    assert fitted.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert fitted.n_features_in_ == 4
    assert set(fitted.predict(flowers[0])) == set(fitted.classes_)


def test_probabilities_are_the_softmax_of_the_network_on_standardised_inputs(
    flowers: tuple[Array, Array],
) -> None:
    inputs, labels = flowers
    model = FalconClassifier(epochs=2, random_state=0, early_stopping=False).fit(inputs, labels)
    standardised = torch.from_numpy(StandardScaler().fit_transform(inputs))
    expected = model.module_(standardised).softmax(1).detach().numpy()
    numpy.testing.assert_allclose(model.predict_proba(inputs), expected, atol=1e-6)


def test_it_is_falcon_on_the_scaled_examples(flowers: tuple[Array, Array]) -> None:
    inputs, labels = flowers
    model = FalconClassifier(epochs=3, random_state=7, early_stopping=False).fit(inputs, labels)
    seed = int(numpy.random.RandomState(7).randint(2**31))
    scaled = torch.from_numpy(StandardScaler().fit_transform(inputs)).float()
    codes = torch.from_numpy(numpy.unique(labels, return_inverse=True)[1])
    examples = Examples(scaled, codes, Bounds(float(scaled.min()), float(scaled.max())))
    torch.manual_seed(seed)
    network = MLP(3, 4)
    falcon = Falcon(epochs=3, learning_rate=3e-3, entropy_weight=2.0, seed=seed)
    falcon.fit(network, examples.batches(32, shuffle=True, seed=seed), examples.batches())
    for found, expected in zip(model.module_.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(found.float(), expected, atol=1e-6, rtol=1e-5)


def test_the_same_random_state_gives_the_same_model_and_leaves_the_callers_alone(
    flowers: tuple[Array, Array],
) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (
        FalconClassifier(epochs=2, random_state=seed).fit(*flowers).predict_proba(flowers[0])
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert numpy.array_equal(one, same)
    assert not numpy.allclose(one, other)


def test_it_pickles_and_clones(fitted: FalconClassifier, flowers: tuple[Array, Array]) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    assert numpy.array_equal(again.predict_proba(flowers[0]), fitted.predict_proba(flowers[0]))
    assert again.history_.table().equals(fitted.history_.table())
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "module_")


@pytest.mark.end_to_end
def test_early_stopping_keeps_the_best_epoch_and_its_absence_the_last(
    flowers: tuple[Array, Array],
) -> None:
    stopped = FalconClassifier(epochs=10, random_state=0).fit(*flowers)
    figures = {record.epoch: record.validation for record in stopped.history_}
    enough = max(figure["accuracy"] for figure in figures.values()) - 0.01
    best = min(
        (epoch for epoch, figure in figures.items() if figure["accuracy"] >= enough),
        key=lambda epoch: figures[epoch]["criterion"],
    )
    assert stopped.history_[-1].kept == best
    soon = FalconClassifier(epochs=30, random_state=0, patience=1).fit(*flowers)
    assert soon.history_[-1].ended == "patience"
    last = FalconClassifier(epochs=10, random_state=0, early_stopping=False).fit(*flowers)
    assert last.history_[-1].kept is None
    assert len(last.history_) == 10


def test_it_works_in_a_pipeline(flowers: tuple[Array, Array]) -> None:
    cut = FunctionTransformer(lambda table: table[:, 2:])
    pipeline = make_pipeline(cut, FalconClassifier(epochs=10, random_state=0)).fit(*flowers)
    assert pipeline[-1].n_features_in_ == 2
    assert pipeline.score(*flowers) > 0.9


@pytest.mark.end_to_end
def test_it_works_in_a_grid_search_over_numbers_of_numpy(flowers: tuple[Array, Array]) -> None:
    grid = {"epochs": numpy.array([1, 12]), "entropy_weight": [0.0, 1.0]}
    search = GridSearchCV(FalconClassifier(random_state=0), grid, cv=2).fit(*flowers)
    assert search.best_params_["epochs"] == 12
    assert search.best_estimator_.score(*flowers) > 0.9


@pytest.mark.end_to_end
def test_it_works_in_cross_validation(flowers: tuple[Array, Array]) -> None:
    scores = cross_val_score(FalconClassifier(random_state=0), *flowers, cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.9


@pytest.mark.end_to_end
@pytest.mark.parametrize("channel", [False, True])
def test_images_go_to_lenet(channel: bool) -> None:
    data = stripes(60)
    images = (255 * data.inputs).numpy()  # (60, 1, 28, 28)
    images, labels = images if channel else images[:, 0], numpy.array(CLASSES)[data.labels]
    model = FalconClassifier(epochs=8, random_state=0).fit(images, labels)
    assert isinstance(model.module_, LeNet)
    assert model.n_features_in_ == 784
    assert model.score(images, labels) > 0.9
    again = model.predict_proba(images if not channel else images[:, 0])
    assert numpy.array_equal(again, model.predict_proba(images))
    with pytest.raises(UserError, match=r"shape \(1, 28, 28\), as in fit, got \(784,\)"):
        model.predict(images.reshape(60, 784))


def test_images_are_brought_to_one_range() -> None:
    images = 10 + 5 * stripes(30).inputs.numpy()
    model = FalconClassifier(square_network, epochs=1, early_stopping=False)
    model.fit(images, numpy.arange(30) % 3)
    inputs = model._inputs(images.reshape(30, -1))
    assert inputs.min() == 0
    assert inputs.max() == 1


@pytest.mark.end_to_end
def test_a_network_of_ones_own(flowers: tuple[Array, Array]) -> None:
    model = FalconClassifier(
        linear_network, epochs=60, learning_rate=0.02, entropy_weight=1.0, random_state=0
    )
    assert model.fit(*flowers).score(*flowers) > 0.85
    assert isinstance(model.module_, nn.Sequential)
    again = pickle.loads(pickle.dumps(model))
    assert numpy.array_equal(again.predict(flowers[0]), model.predict(flowers[0]))


def test_settings_of_falcon_are_passed_on_and_wrong_ones_named(
    flowers: tuple[Array, Array],
) -> None:
    settings = {"calibration_fraction": 0.0, "bounds": None}
    model = FalconClassifier(epochs=1, settings=settings).fit(*flowers)
    assert "calibration/calibration" not in model.history_[0].terms
    with pytest.raises(UserError, match=r"unknown setting 'epsilon'\. Did you mean 'epsilons'"):
        FalconClassifier(settings={"epsilon": 0.0}).fit(*flowers)


def test_constant_inputs_are_no_obstacle() -> None:
    model = FalconClassifier(epochs=1).fit(numpy.ones((20, 2)), numpy.arange(20) % 2)
    assert numpy.isfinite(model.predict_proba(numpy.ones((3, 2)))).all()


def test_a_constant_column_is_left_alone_where_its_deviation_is_rounded() -> None:
    """The deviation of many numbers 0.1 is 2e-17, not 0."""
    rows = numpy.column_stack([numpy.full(90, 0.1), numpy.arange(90) % 3])
    assert rows[:, 0].std() > 0
    model = FalconClassifier(epochs=1, early_stopping=False).fit(rows, numpy.arange(90) % 2)
    assert model.scaler_.scale_[0] == 1
    numpy.testing.assert_allclose(model.scaler_.scale_[1], rows[:, 1].std())
    assert abs(model.scaler_.transform([[0.2, 0.0]])[0, 0] - 0.1) < 1e-12


def test_images_are_scaled_together_and_tables_by_column() -> None:
    labels = numpy.arange(20) % 2
    images = numpy.random.default_rng(0).integers(0, 256, (20, 12, 12))
    seen = (
        FalconClassifier(epochs=1, early_stopping=False)
        .fit(images, labels)
        ._inputs(images.reshape(20, -1))
    )
    low, high = images.min(), images.max()
    expected = ((images - low) / (high - low)).astype(numpy.float32)
    numpy.testing.assert_array_equal(seen[:, 0].numpy(), expected)
    table = images[:, 0].astype(numpy.float64)
    seen = FalconClassifier(epochs=1, early_stopping=False).fit(table, labels)._inputs(table)
    expected = ((table - table.mean(0)) / table.std(0)).astype(numpy.float32)
    numpy.testing.assert_array_equal(seen.numpy(), expected)


def test_examples_are_held_out_by_class() -> None:
    codes = numpy.repeat([0, 1, 2], [60, 30, 10])
    train, held = hold_out(codes, 0.1, seed=5)
    assert sorted([*train, *held]) == list(range(100))
    assert numpy.bincount(codes[held]).tolist() == [6, 3, 1]
    expected = StratifiedShuffleSplit(1, test_size=10, random_state=5).split(codes, codes)
    assert held.tolist() == next(expected)[1].tolist()
    assert held.tolist() != hold_out(codes, 0.1, seed=6)[1].tolist()


def test_the_only_example_of_a_class_is_trained_on() -> None:
    for seed in range(20):
        train, held = hold_out(numpy.array([0, 0, 0, 1, 2, 2, 2]), 0.3, seed)
        assert 3 in train
        assert len(held) == 2


@pytest.mark.parametrize(
    ("codes", "fraction", "message"),
    [
        ([0, 1], 0.5, "got 2 in 2 classes: give more, or set early_stopping=False"),
        ([0, 0, 1, 1], 0.0, "validation_fraction between 0 and 1, got 0.0"),
        ([0, 0, 1, 1], 1.0, "validation_fraction between 0 and 1, got 1.0"),
    ],
)
def test_what_cannot_be_split_is_refused(codes: list[int], fraction: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        hold_out(numpy.array(codes), fraction, seed=0)


def test_what_lenet_cannot_take_is_refused() -> None:
    with pytest.raises(UserError, match=r"got examples of shape \(1, 28, 20\): for others pass"):
        FalconClassifier().fit(numpy.random.rand(20, 28, 20), numpy.arange(20) % 2)


def test_one_class_is_refused() -> None:
    with pytest.raises(UserError, match="at least 2 classes, got 1 class"):
        FalconClassifier().fit(numpy.random.rand(20, 3), numpy.zeros(20, dtype=int))


def test_it_is_recalibrated_with_rows_that_it_was_not_trained_on() -> None:
    """The classes stay, the probabilities are those of the calibrator on the network, twice too."""
    rows, labels = load_iris(return_X_y=True)
    names = numpy.array(["setosa", "versicolor", "virginica"])[labels]
    known, held = slice(0, None, 2), slice(1, None, 2)
    model = FalconClassifier(epochs=5, random_state=0).fit(rows[known], names[known])
    before, chosen, network = model.predict_proba(rows), model.predict(rows), model.module_
    for _ in range(2):
        model.recalibrate(rows[held], names[held], Temperature())
        trusted: Any = model.module_
        heat = float(trusted.calibration.temperature)
        expected = before ** (1 / heat) / (before ** (1 / heat)).sum(1, keepdims=True)
        numpy.testing.assert_allclose(model.predict_proba(rows), expected, rtol=1e-6)
        assert heat != 1
        assert trusted.model is network
    assert (model.predict(rows) == chosen).all()
    with pytest.raises(UserError, match="got iris"):
        model.recalibrate(rows[:1], ["iris"])


def quick(**settings: Any) -> FalconClassifier:
    return FalconClassifier(epochs=2, random_state=0, **settings)


def test_wrong_parts_are_named(flowers: tuple[Array, Array]) -> None:
    with pytest.raises(UserError, match=r"a function that makes a network, .* got a Linear"):
        quick(module=nn.Linear(4, 3)).fit(*flowers)
    with pytest.raises(UserError, match="a model, a torch"):
        quick(module=lambda *_: None).fit(*flowers)
    classifier = quick().fit(*flowers)
    with pytest.raises(UserError, match=r"a calibrator, such as .* the class Temperature"):
        classifier.recalibrate(*flowers, Temperature)  # type: ignore[arg-type]


def test_one_number_is_one_hidden_layer(flowers: tuple[Array, Array]) -> None:
    layers = quick(hidden=8).fit(*flowers).module_.modules()
    assert [one.out_features for one in layers if isinstance(one, nn.Linear)] == [8, 3]


def test_logarithms_stay_finite_where_probabilities_vanish(flowers: tuple[Array, Array]) -> None:
    classifier, far = quick().fit(*flowers), 1e5 * flowers[0]
    logarithms = classifier.predict_log_proba(far)
    assert numpy.isfinite(logarithms).all()
    assert logarithms.min() < -800
    numpy.testing.assert_allclose(numpy.exp(logarithms), classifier.predict_proba(far))
