"""Recalibration against closed forms, scikit-learn, and definitions written out by hand."""

import math
from itertools import pairwise
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from falconcal.data import Dataset, Examples, TensorBatches
from falconcal.errors import CalibrationWarning, UserError
from falconcal.methods import Falcon, L2Dropout
from falconcal.metrics import (
    accuracy,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
)
from falconcal.metrics.binning import EDGE_TOLERANCE
from falconcal.metrics.predictions import LOWEST_LOG, Predictions
from falconcal.models.predict import predict
from falconcal.recalibration import (
    FittedCalibrator,
    HistogramBinning,
    Isotonic,
    ScalingBinning,
    Temperature,
    VectorScaling,
)
from falconcal.recalibration.scaling_binning import three_parts
from tests.helpers.methods_by_kind import CALIBRATORS
from tests.helpers.small_data import small_network

# for those that look at examples: one family is enough to say that two fits agree
QUICK: dict[str, Any] = {"perturbed": ("contrast",), "check_families": False}
# those that need predictions alone
OF_PREDICTIONS = {name: kind for name, kind in CALIBRATORS.items() if not kind().observes}


def drawn(count: int, classes: int = 4, factor: float = 1.0, seed: int = 0) -> Predictions:
    """Return predictions whose logits are ``factor`` times those that the labels follow."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits(factor * logits, labels)


def learned(tiny: Dataset) -> nn.Module:
    method = L2Dropout(epochs=5, learning_rate=0.01)
    return method.fit(small_network(), tiny.train.batches(30), tiny.validation.batches())


def mistaken(tiny: Dataset) -> TensorBatches:
    """Return data of which a fifth is labelled wrong, so that there is something to settle."""
    labels = torch.where(torch.arange(90) % 5 == 0, (tiny.train.labels + 1) % 3, tiny.train.labels)
    return Examples(tiny.train.inputs, labels, tiny.bounds, tiny.classes).batches(30)


def parameter(calibration: FittedCalibrator, name: str) -> Tensor:
    return calibration.get_buffer(name)


def temperature_of(predictions: Predictions) -> float:
    return float(parameter(Temperature().fit_predictions(predictions), "temperature"))


def probabilities(predictions: Predictions) -> Tensor:
    return predictions.log_probs.exp()


# every calibrator


@pytest.mark.parametrize("name", OF_PREDICTIONS)
def test_it_reduces_overconfidence_on_data_it_has_not_seen(name: str) -> None:
    seen, other = drawn(6000, factor=3.0), drawn(20_000, factor=3.0, seed=1)
    calibrated = OF_PREDICTIONS[name]().fit_predictions(seen).transform(other)
    assert expected_calibration_error(other) > 0.15
    assert expected_calibration_error(calibrated) < 0.03
    assert brier_score(calibrated) < brier_score(other)
    assert torch.equal(calibrated.labels, other.labels)
    total = probabilities(calibrated).sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-12, atol=0)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", OF_PREDICTIONS)
def test_a_model_is_calibrated_as_its_predictions_are(name: str, tiny: Dataset) -> None:
    model, calibrator = learned(tiny), OF_PREDICTIONS[name]()
    many = mistaken(tiny)
    wrapped = calibrator.fit(model, None, many)
    calibration = calibrator.fit_predictions(predict(model, many))
    expected = calibration.transform(predict(model, tiny.test))
    torch.testing.assert_close(predict(wrapped, tiny.test).log_probs, expected.log_probs)
    assert all(not buffer.requires_grad for buffer in wrapped.buffers())
    weights = {name for name, _ in wrapped.named_parameters()}
    assert weights == {f"model.{name}" for name, _ in model.named_parameters()}


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", CALIBRATORS)
def test_the_model_is_left_as_it_was_and_read_in_inference_mode(name: str, tiny: Dataset) -> None:
    model = learned(tiny)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    calibrator = CALIBRATORS[name](**(QUICK if CALIBRATORS[name].observes else {}))
    first, second = (calibrator.fit(model.train(), None, mistaken(tiny)) for _ in range(2))
    for key, weight in model.state_dict().items():
        assert torch.equal(weight, before[key])
    for one, other in zip(first.buffers(), second.buffers(), strict=True):
        assert torch.equal(one, other)  # dropout would have made them differ


@pytest.mark.parametrize("name", OF_PREDICTIONS)
def test_logits_of_float32_and_float64_are_calibrated_in_float64(name: str) -> None:
    seen = drawn(900, factor=2.0)
    narrow = Predictions(seen.log_probs.float(), seen.labels)
    calibration = OF_PREDICTIONS[name]().fit_predictions(narrow)
    assert {buffer.dtype for buffer in calibration.buffers()} == {torch.float64}
    assert calibration.transform(narrow).log_probs.dtype == torch.float64


@pytest.mark.parametrize("name", OF_PREDICTIONS)
@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
def test_probabilities_of_0_and_1_stay_finite(name: str) -> None:
    """Also where the true class was given 0, in what is seen and in what is transformed."""
    certain = torch.eye(3).double().repeat(20, 1)  # (60, 3)
    labels = torch.arange(60) % 3
    labels[:6] = (labels[:6] + 1) % 3
    predictions = Predictions.from_probabilities(certain, labels)
    calibrated = OF_PREDICTIONS[name]().fit_predictions(predictions).transform(predictions)
    assert calibrated.log_probs.isfinite().all()
    assert math.isfinite(negative_log_likelihood(calibrated))
    assert negative_log_likelihood(calibrated) < negative_log_likelihood(predictions)


@pytest.mark.parametrize("name", OF_PREDICTIONS)
def test_a_class_without_labels_is_survived(name: str) -> None:
    everything = drawn(900, factor=2.0)
    some = everything.labels != 2
    seen = Predictions(everything.log_probs[some], everything.labels[some])
    calibrated = OF_PREDICTIONS[name]().fit_predictions(seen).transform(seen)
    assert calibrated.log_probs.isfinite().all()
    assert negative_log_likelihood(calibrated) < negative_log_likelihood(seen)


@pytest.mark.parametrize("name", OF_PREDICTIONS)
def test_what_cannot_be_learned_from_is_refused(name: str) -> None:
    seen, calibrator = drawn(90), OF_PREDICTIONS[name]()
    unknown = Predictions(seen.log_probs, torch.where(seen.labels == 1, -1, seen.labels))
    with pytest.raises(UserError, match=r"true class of every .* got \d+ labels of -1"):
        calibrator.fit_predictions(unknown)
    with pytest.raises(UserError, match="examples to calibrate on, got none"):
        calibrator.fit_predictions(Predictions(seen.log_probs[:0], seen.labels[:0]))
    alone = seen.labels == 3
    with pytest.raises(UserError, match="at least 2 classes, got class 3 alone"):
        calibrator.fit_predictions(Predictions(seen.log_probs[alone], seen.labels[alone]))


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_base_needs_training_data_and_settings(name: str, tiny: Dataset) -> None:
    with pytest.raises(UserError, match="fit needs train=, batches of"):
        CALIBRATORS[name](base=L2Dropout()).fit(small_network(), None, tiny.validation.batches())
    with pytest.raises(
        UserError, match=r"base should be a method with its settings, .* Falcon\(\)"
    ):
        CALIBRATORS[name](base=Falcon)
    with pytest.raises(UserError, match="base should be an instance of Method, got 'falcon'"):
        CALIBRATORS[name](base="falcon")


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrated_model_goes_on_in_float32(name: str, tiny: Dataset) -> None:
    """As on a device that has no float64."""
    wrapped = CALIBRATORS[name]().fit(learned(tiny), None, mistaken(tiny))
    wide = predict(wrapped, tiny.test).log_probs
    narrow = predict(wrapped.float(), tiny.test).log_probs
    torch.testing.assert_close(narrow.exp(), wide.exp(), rtol=1e-4, atol=1e-5)


# temperature


@pytest.mark.end_to_end
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("known", [0.2, 0.7, 1.0, 2.5, 12.0])
def test_temperature_recovers_a_known_one(known: float, dtype: torch.dtype) -> None:
    logits = drawn(40_000, factor=known).log_probs.to(dtype)
    predictions = Predictions.from_logits(logits, drawn(40_000).labels)
    assert temperature_of(predictions) == pytest.approx(
        known, rel=0.02
    )  # 40,000 labels say no more


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_temperature_grows_as_the_logits_do(dtype: torch.dtype) -> None:
    plain, scaled = drawn(500), drawn(500, factor=3.0)
    one, logits = temperature_of(plain), scaled.log_probs.to(dtype)
    three = temperature_of(Predictions.from_logits(logits, scaled.labels))
    tolerance = 1e-10 if dtype == torch.float64 else 1e-6
    assert three / one == pytest.approx(3, rel=tolerance)


def test_temperature_is_where_the_likelihood_is_best() -> None:
    seen = drawn(300, factor=2.0)
    best = temperature_of(seen)

    def loss(temperature: float) -> float:
        return negative_log_likelihood(
            Predictions.from_logits(seen.log_probs / temperature, seen.labels)
        )

    assert loss(best) < min(loss(best * 0.999), loss(best * 1.001), loss(1.0))


def test_temperature_by_hand() -> None:
    """Two classes, log-odds 2, right three times of four: sigmoid(2 / T) = 3/4, T = 2 / log 3."""
    logits = torch.tensor([[2.0, 0.0]] * 4)
    predictions = Predictions.from_logits(logits, torch.tensor([0, 0, 0, 1]))
    calibration = Temperature().fit_predictions(predictions)
    assert temperature_of(predictions) == pytest.approx(2 / math.log(3), rel=1e-12)
    expected = torch.tensor([0.75, 0.25]).double().expand(4, 2)
    torch.testing.assert_close(probabilities(calibration.transform(predictions)), expected)


@pytest.mark.end_to_end
@given(
    rows=st.lists(
        st.lists(st.floats(-1e4, 1e4, width=16), min_size=3, max_size=3), min_size=4, max_size=12
    ),
    temperature=st.floats(0.01, 100),
)
def test_temperature_never_changes_the_predicted_class(
    rows: list[list[float]], temperature: float
) -> None:
    logits = torch.tensor(rows)
    predictions = Predictions.from_logits(logits, torch.zeros(len(rows)).long())
    applied = Temperature().apply(
        predictions.log_probs.clamp_min(LOWEST_LOG), temperature=torch.tensor(temperature).double()
    )
    before, after = predictions.log_probs, applied
    for row, winner in enumerate(after.argmax(1).tolist()):
        assert before[row, winner] == before[row].max()


def test_temperature_keeps_accuracy() -> None:
    seen, other = drawn(2000, factor=5.0), drawn(5000, factor=5.0, seed=1)
    calibrated = Temperature().fit_predictions(seen).transform(other)
    assert accuracy(calibrated) == accuracy(other)


@pytest.mark.parametrize("factor", [1e-6, 1e-3, 10.0])
def test_temperature_is_sought_as_far_out_as_it_takes(factor: float) -> None:
    """Of logits so many times as large the best temperature is so many times as high."""
    seen = drawn(500)
    small = Predictions.from_logits(factor * seen.log_probs.double(), seen.labels)
    assert temperature_of(small) == pytest.approx(factor * temperature_of(seen), rel=1e-4)


def test_temperature_without_a_mistake_follows_laplace() -> None:
    """Margin 1, 12 of 12 right: e^(1/T) / (e^(1/T) + 2) = 13 / 14, so T = 1 / log 26."""
    predictions = Predictions.from_logits(torch.eye(3).repeat(4, 1), torch.arange(12) % 3)
    with pytest.warns(
        CalibrationWarning, match="more confidence, since the model makes no mistake"
    ):
        assert temperature_of(predictions) == pytest.approx(1 / math.log(26))


@pytest.mark.parametrize(("margin", "bound"), [(1e-3, 0.01), (math.inf, 100.0)])
def test_temperature_of_what_is_always_right_stays_bounded(margin: float, bound: float) -> None:
    logits = torch.where(torch.eye(3).bool(), 0.0, -margin).repeat(4, 1)
    with pytest.warns(CalibrationWarning):
        assert temperature_of(Predictions.from_logits(logits, torch.arange(12) % 3)) == bound


def test_temperature_below_chance_stays_bounded() -> None:
    logits = torch.eye(3).repeat(4, 1)
    with pytest.warns(CalibrationWarning, match="less confidence, since the model is no better"):
        assert temperature_of(Predictions.from_logits(logits, (torch.arange(12) + 1) % 3)) == 100.0


# vector scaling


def test_vector_scaling_of_two_classes_is_logistic_regression() -> None:
    """w_1 z_1 + b_1 - w_0 z_0 - b_0 is a logistic regression on both log-probabilities."""
    seen, other = drawn(800, classes=2, factor=2.0), drawn(300, classes=2, factor=2.0, seed=1)
    calibration = VectorScaling(penalty=0.0).fit_predictions(seen)
    theirs = LogisticRegression(C=numpy.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    theirs.fit(seen.log_probs.numpy(), seen.labels.numpy())
    expected = torch.from_numpy(theirs.predict_proba(other.log_probs.numpy()))
    ours = probabilities(calibration.transform(other))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    weight, offset = parameter(calibration, "weight"), parameter(calibration, "offset")
    assert [-float(weight[0]), float(weight[1])] == pytest.approx(theirs.coef_[0], rel=1e-3)
    assert float(offset[1] - offset[0]) == pytest.approx(theirs.intercept_[0], abs=1e-3)


def test_vector_scaling_recovers_known_weights_and_offsets() -> None:
    plain = drawn(60_000)
    weight, offset = torch.tensor([0.5, 1.0, 2.0, 1.5]), torch.tensor([1.0, 0.0, -0.5, 0.3])
    generator = torch.Generator().manual_seed(3)
    truth = (weight * plain.log_probs + offset).softmax(1)
    labels = torch.multinomial(truth, 1, generator=generator)[:, 0]
    seen = Predictions(plain.log_probs, labels)
    found = VectorScaling(penalty=0.0).fit_predictions(seen)
    torch.testing.assert_close(parameter(found, "weight"), weight.double(), rtol=0.1, atol=0)
    shift = (
        parameter(found, "offset") - parameter(found, "offset")[1]
    )  # offsets are known up to a constant
    torch.testing.assert_close(shift, offset.double(), rtol=0, atol=0.1)


def test_vector_scaling_is_where_the_penalised_loss_has_no_slope() -> None:
    seen = drawn(400, factor=2.0)
    found = VectorScaling(penalty=20.0).fit_predictions(seen)
    weight, offset = (
        parameter(found, name).clone().requires_grad_() for name in ("weight", "offset")
    )
    likelihood = -(weight * seen.log_probs + offset).log_softmax(1)[range(400), seen.labels].mean()
    distance = (weight - 1).square().sum() + offset.square().sum()
    for slope in torch.autograd.grad(likelihood + 20 / 800 * distance, [weight, offset]):
        torch.testing.assert_close(slope, torch.zeros(4).double(), rtol=0, atol=1e-6)


# isotonic regression


def test_isotonic_is_scikit_learns_renormalised() -> None:
    seen, other = drawn(700, factor=2.0), drawn(500, factor=3.0, seed=1)
    votes = torch.distributions.Multinomial(50, probabilities(seen)).sample() / 50  # many ties
    seen = Predictions.from_probabilities(votes, seen.labels)
    columns = []
    for label in range(4):
        theirs = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        theirs.fit(probabilities(seen)[:, label].numpy(), (seen.labels == label).double().numpy())
        columns.append(torch.from_numpy(theirs.predict(probabilities(other)[:, label].numpy())))
    expected = torch.stack(columns, 1)
    expected = expected / expected.sum(1, keepdim=True)
    ours = probabilities(Isotonic().fit_predictions(seen).transform(other))
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_isotonic_by_hand() -> None:
    """Of class 1, at 0.1, 0.2, 0.4, 0.6, 0.8 the truths 0, 1, 0, 1, 1 pool to 0, 1/2, 1/2, 1, 1."""
    second = torch.tensor([0.1, 0.2, 0.4, 0.6, 0.8]).double()
    rows = torch.stack([1 - second, second], 1)
    seen = Predictions.from_probabilities(rows, torch.tensor([0, 1, 0, 1, 1]))
    calibration = Isotonic().fit_predictions(seen)
    asked = torch.tensor([0.05, 0.1, 0.15, 0.3, 0.5, 0.7, 0.95]).double()
    other = Predictions.from_probabilities(
        torch.stack([1 - asked, asked], 1), torch.zeros(7).long()
    )
    expected = torch.tensor([0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]).double()
    torch.testing.assert_close(probabilities(calibration.transform(other))[:, 1], expected)


# histogram binning


def histogram_by_hand(
    seen: Predictions, edges: list[list[float]], probs: list[float]
) -> list[float]:
    """Return the binned and renormalised probabilities of one example, written out as loops."""
    found = []
    for label, prob in enumerate(probs):
        bounds = [-1.0, *edges[label], 2.0]
        place = next(i for i in range(len(bounds)) if bounds[i] < prob <= bounds[i + 1])
        inside = [
            int(truth) == label
            for row, truth in zip(probabilities(seen), seen.labels, strict=True)
            if bounds[place] < row[label] <= bounds[place + 1]
        ]
        found.append(sum(inside) / len(inside))
    return [value / sum(found) for value in found]


def test_histogram_of_equal_width_by_its_definition() -> None:
    seen, other = drawn(200, classes=3), drawn(20, classes=3, seed=1)
    calibration = HistogramBinning(bins=4, spacing="width").fit_predictions(seen)
    ours = probabilities(calibration.transform(other))
    for row, probs in zip(ours.tolist(), probabilities(other).tolist(), strict=True):
        assert row == pytest.approx(histogram_by_hand(seen, [[0.25, 0.5, 0.75]] * 3, probs))


def test_histogram_of_equal_mass_by_its_definition() -> None:
    seen, other = drawn(200, classes=3), drawn(20, classes=3, seed=1)
    calibration = HistogramBinning(bins=5).fit_predictions(seen)
    edges = []
    for column in probabilities(seen).T:
        ordered = sorted(column.tolist())
        edges.append([(ordered[k - 1] + ordered[k]) / 2 for k in (40, 80, 120, 160)])
    ours = probabilities(calibration.transform(other))
    for row, probs in zip(ours.tolist(), probabilities(other).tolist(), strict=True):
        assert row == pytest.approx(histogram_by_hand(seen, edges, probs))


def test_histogram_closes_bins_on_the_right_and_fills_empty_ones_with_their_middle() -> None:
    """In halves: 0.5, also as float32 has it, belongs below; nobody above says 0.75."""
    first = torch.tensor([0.5, 0.4, 0.3, 0.2]).double()
    rows = torch.stack([first, 0.5 * (1 - first), 0.5 * (1 - first)], 1)
    seen = Predictions.from_probabilities(rows, torch.tensor([0, 1, 1, 2]))
    calibration = HistogramBinning(bins=2, spacing="width").fit_predictions(seen)
    expected = torch.tensor([[0.25, 0.75], [0.5, 0.75], [0.25, 0.75]]).double()
    values = parameter(calibration, "values")  # edges lie a tolerance higher, middles half of it
    torch.testing.assert_close(values, expected, rtol=0, atol=EDGE_TOLERANCE)
    asked = torch.tensor([[0.5 + 6e-8, 0.25, 0.25 - 6e-8]]).double()
    ours = calibration.transform(Predictions.from_probabilities(asked, torch.tensor([0])))
    torch.testing.assert_close(probabilities(ours)[0], torch.tensor([0.25, 0.5, 0.25]).double())


def test_histogram_of_equal_mass_keeps_equal_probabilities_together() -> None:
    """0.2 three times and 0.8: the edge between two of the equal ones is 0.2, and closed."""
    second = torch.tensor([0.2, 0.2, 0.2, 0.8]).double()
    rows = torch.stack([1 - second, second], 1)
    seen = Predictions.from_probabilities(rows, torch.tensor([0, 1, 0, 1]))
    calibration = HistogramBinning(bins=2).fit_predictions(seen)
    values = parameter(calibration, "values")[1]
    torch.testing.assert_close(values, torch.tensor([1 / 3, 1.0], dtype=torch.float64))


def test_a_row_of_zeros_becomes_uniform() -> None:
    """Classes 0 and 1 were never right when they were sure, class 2 has no labels."""
    sure = torch.tensor([[0.9, 0.05, 0.05]] * 10 + [[0.05, 0.9, 0.05]] * 10).double()
    seen = Predictions.from_probabilities(sure, torch.tensor([1] * 10 + [0] * 10))
    asked = Predictions.from_probabilities(
        torch.tensor([[0.5, 0.5, 0.0], [0.9, 0.05, 0.05]]).double(), torch.tensor([0, 0])
    )
    calibration = HistogramBinning(bins=2, spacing="width").fit_predictions(seen)
    calibration.values = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]).double()
    ours = probabilities(calibration.transform(asked))
    torch.testing.assert_close(ours, torch.full((2, 3), 1 / 3).double())


# scaling-binning


def test_the_three_parts_are_disjoint_and_drawn_by_the_seed() -> None:
    parts = three_parts(100, 10, 3)
    assert sorted(torch.cat(parts).tolist()) == list(range(100))
    assert {len(part) for part in parts} == {33, 34}
    assert not torch.equal(parts[0], three_parts(100, 10, 4)[0])
    with pytest.raises(UserError, match=r"at least 30 validation examples, .* got 29: lower bins"):
        three_parts(29, 10, 0)


def test_top_label_binning_by_its_definition() -> None:
    """Temperature from part one, equal mass on part two, means of g on part three."""
    seen, other = drawn(600, factor=2.0), drawn(100, factor=2.0, seed=1)
    first, second, third = three_parts(600, 5, 0)
    part = Predictions(seen.log_probs[first], seen.labels[first])
    temperature = temperature_of(part)

    def top(log_probs: Tensor) -> list[float]:
        values: list[float] = (log_probs / temperature).softmax(1).max(1).values.tolist()
        return values

    ordered = sorted(top(seen.log_probs[second]))
    edges = [-1.0, *((ordered[k - 1] + ordered[k]) / 2 for k in (40, 80, 120, 160)), 2.0]
    ours = probabilities(ScalingBinning(bins=5).fit_predictions(seen).transform(other))
    scaled = (other.log_probs / temperature).softmax(1)
    for row, before, confidence in zip(ours, scaled, top(other.log_probs), strict=True):
        low, high = next(pair for pair in pairwise(edges) if confidence <= pair[1])
        inside = [value for value in top(seen.log_probs[third]) if low < value <= high]
        winner = int(before.argmax())
        expected = before * (1 - sum(inside) / len(inside)) / (1 - before[winner])
        expected[winner] = sum(inside) / len(inside)
        if expected.argmax() == winner:  # else the winner is kept ahead, which has its own test
            torch.testing.assert_close(row, expected)


def test_a_bin_that_part_three_misses_is_filled_from_part_two() -> None:
    """30 examples and 10 bins: one of part two in each, and of part three in some."""
    seen = drawn(30, seed=1)
    parts = three_parts(30, 10, 0)
    first, second, third = (Predictions(seen.log_probs[one], seen.labels[one]) for one in parts)
    temperature = temperature_of(first)
    masses, means = (
        sorted((part.log_probs / temperature).softmax(1).max(1).values.tolist())
        for part in (second, third)
    )
    edges = [-1.0, *(sum(pair) / 2 for pair in pairwise(masses)), 2.0]
    inside = [[one for one in means if low < one <= high] for low, high in pairwise(edges)]
    assert [] in inside
    expected = [sum(few) / len(few) if few else masses[i] for i, few in enumerate(inside)]
    values = parameter(ScalingBinning().fit_predictions(seen), "values")
    assert values[0].tolist() == pytest.approx(expected)


def test_marginal_binning_by_its_definition() -> None:
    """Each class alone: Platt's line on log-odds, equal mass, means of g; then renormalised."""
    seen, other = drawn(600, classes=3, factor=2.0), drawn(50, classes=3, factor=2.0, seed=1)
    first, second, third = three_parts(600, 5, 7)
    columns = []
    for label in range(3):
        odds = torch.special.logit(probabilities(seen)[:, label])
        line = platt_by_hand(odds[first], seen.labels[first] == label)
        scores = torch.sigmoid(line[0] * odds + line[1])
        ordered = sorted(scores[second].tolist())
        edges = [-1.0, *((ordered[k - 1] + ordered[k]) / 2 for k in (40, 80, 120, 160)), 2.0]
        asked = torch.sigmoid(
            line[0] * torch.special.logit(probabilities(other)[:, label]) + line[1]
        )
        means = []
        for value in asked.tolist():
            low, high = next(pair for pair in pairwise(edges) if value <= pair[1])
            inside = [one for one in scores[third].tolist() if low < one <= high]
            means.append(sum(inside) / len(inside))
        columns.append(torch.tensor(means).double())
    expected = torch.stack(columns, 1)
    expected = expected / expected.sum(1, keepdim=True)
    calibrator = ScalingBinning(kind="marginal", bins=5, seed=7)
    ours = probabilities(calibrator.fit_predictions(seen).transform(other))
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-7)


def platt_by_hand(odds: Tensor, truth: Tensor) -> tuple[float, float]:
    """Return slope and offset by scikit-learn: Platt's soft targets as weighted hard labels."""
    hits, misses = int(truth.sum()), int((~truth).sum())
    target = torch.where(truth, (hits + 1) / (hits + 2), 1 / (misses + 2)).numpy()
    theirs = LogisticRegression(C=numpy.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    rows = numpy.concatenate([odds.numpy(), odds.numpy()])[:, None]
    labels = numpy.concatenate([numpy.ones(len(odds)), numpy.zeros(len(odds))])
    theirs.fit(rows, labels, sample_weight=numpy.concatenate([target, 1 - target]))
    return float(theirs.coef_[0, 0]), float(theirs.intercept_[0])


def test_top_label_keeps_the_predicted_class_where_the_bin_would_not() -> None:
    """0.5 becomes 0.36, and the next of 0.45 would get 0.45 * 0.64 / 0.5 = 0.576."""
    calibrator = ScalingBinning(bins=1)
    parameters = {
        "scaling": torch.ones(1), "edges": torch.empty(1, 0), "values": torch.tensor([[0.36]]),
    }  # fmt: skip
    log_probs = torch.tensor([[0.45, 0.5, 0.05], [0.2, 0.6, 0.2]]).double().log()
    ours = calibrator.apply(log_probs, **{k: v.double() for k, v in parameters.items()}).exp()
    assert ours.argmax(1).tolist() == [1, 1]
    # the least that stays ahead: v = 0.9 (1 - v), v = 0.9 / 1.9
    assert ours[0, 1].item() == pytest.approx(0.9 / 1.9, rel=1e-5)
    torch.testing.assert_close(ours[0, 0] / ours[0, 2], torch.tensor(9.0).double())
    torch.testing.assert_close(ours[1], torch.tensor([0.32, 0.36, 0.32]).double())


def test_top_label_never_changes_accuracy() -> None:
    seen, other = drawn(300, classes=8, factor=0.3), drawn(3000, classes=8, factor=0.3, seed=1)
    calibrated = ScalingBinning(bins=3).fit_predictions(seen).transform(other)
    assert torch.equal(calibrated.scores().prediction, other.scores().prediction)


# composition


def test_temperature_after_a_base_is_the_base_then_temperature(tiny: Dataset) -> None:
    base, train, validation = L2Dropout(epochs=5), tiny.train.batches(30), mistaken(tiny)
    together = Temperature(base=base).fit(small_network(), train, validation)
    apart = Temperature().fit(base.fit(small_network(), train, validation), None, validation)
    assert torch.equal(predict(together, tiny.test).log_probs, predict(apart, tiny.test).log_probs)


def test_calibrators_compose(tiny: Dataset) -> None:
    many, model = mistaken(tiny), learned(tiny)
    twice = VectorScaling(base=Temperature()).fit(model, many, many)
    vector = VectorScaling().fit(Temperature().fit(model, None, many), None, many)
    torch.testing.assert_close(
        predict(twice, tiny.test).log_probs, predict(vector, tiny.test).log_probs
    )
    assert isinstance(VectorScaling(base=Temperature()).build(model), nn.Module)
