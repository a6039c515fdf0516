"""Every method of the table under one contract, and what is special to FALCON."""

import pytest
import torch
from torch import Tensor, nn

from falconcal.data import Bounds, Dataset, Examples
from falconcal.errors import UserError
from falconcal.losses import calibration_loss, predictive_entropy_loss
from falconcal.methods import METHODS, Falcon, L2Dropout
from falconcal.methods import falcon as falcon_module
from falconcal.metrics import accuracy
from falconcal.predictions import predict
from falconcal.settings import as_dict
from falconcal.studies.store import load_weights, save_weights
from falconcal.training import Step
from tests.conftest import small_network

QUICK = {"epochs": 25, "learning_rate": 0.01}
# a few steps teach these networks little, and falconcal rightly says so
pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def fitted(name: str, tiny: Dataset, seed: int = 0, **settings: object) -> nn.Module:
    method = METHODS[name](**{**QUICK, **settings}, seed=seed)
    batches = tiny.train.batches(30, shuffle=True, seed=seed)
    return method.fit(small_network(seed=0), batches, tiny.validation.batches())


def log_probs(model: nn.Module, tiny: Dataset) -> Tensor:
    return predict(model, tiny.test).log_probs


@pytest.mark.parametrize("name", METHODS)
def test_it_learns_and_gives_a_normalised_distribution(name: str, tiny: Dataset) -> None:
    model = fitted(name, tiny)
    assert not model.training
    predictions = predict(model, tiny.test)
    assert accuracy(predictions) > 0.9
    torch.testing.assert_close(predictions.log_probs.exp().sum(1), torch.ones(30).double())


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_result_other_seed_other_result(name: str, tiny: Dataset) -> None:
    first, second = (log_probs(fitted(name, tiny, seed=1, epochs=3), tiny) for _ in range(2))
    other = log_probs(fitted(name, tiny, seed=2, epochs=3), tiny)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", METHODS)
def test_saved_and_loaded_it_predicts_the_same(name: str, tiny: Dataset, tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "weights.safetensors"
    model = fitted(name, tiny, epochs=2)
    save_weights(file, model)
    loaded = load_weights(file, small_network(seed=5))
    assert torch.equal(log_probs(model, tiny), log_probs(loaded, tiny))


@pytest.mark.parametrize("name", METHODS)
def test_it_survives_a_validation_set_with_a_missing_class(name: str, tiny: Dataset) -> None:
    some = tiny.validation.labels != 1
    validation = Examples(tiny.validation.inputs[some], tiny.validation.labels[some], tiny.bounds)
    for keep in ("last", "best"):
        method = METHODS[name](**QUICK, keep=keep)
        method.fit(small_network(), tiny.train.batches(30), validation.batches())


@pytest.mark.parametrize("name", METHODS)
def test_its_settings_are_frozen_and_survive_plain_data(name: str) -> None:
    method = METHODS[name](epochs=7, **({"bounds": Bounds(0.0, 2.0)} if name == "falcon" else {}))
    assert METHODS[name](**as_dict(method)) == method
    with pytest.raises(AttributeError):
        method.epochs = 8  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("epochs", 0, "epochs should be greater than or equal to 1, got 0"),
        ("epochs", 2.5, "epochs should be a valid integer"),
        ("epochs", "ten", "epochs should be a valid integer"),
        ("learning_rate", -1.0, "learning_rate should be greater than 0"),
        ("learning_rate", float("nan"), "learning_rate"),
        ("l2_weight", -0.1, "l2_weight should be greater than or equal to 0"),
        ("dropout", 1.5, "dropout should be less than or equal to 1"),
        ("keep", "worst", "keep should be 'last' or 'best'"),
        ("epoch", 3, r"unknown setting 'epoch'. Did you mean 'epochs'\?"),
    ],
)
def test_wrong_settings_are_refused(name: str, setting: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        METHODS[name](**{setting: value})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("entropy_weight", -1.0),
        ("calibration_weight", -0.02),
        ("share", 1.1),
        ("bins", 0),
        ("epsilons", []),
        ("epsilons", [-0.1]),
        ("entropy_annealing", 0.0),
        ("gradient", "none"),
    ],
)
def test_falcon_refuses_settings_out_of_range(setting: str, value: object) -> None:
    with pytest.raises(UserError, match=f"Falcon: {setting}"):
        Falcon(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("gradient", ["exact", "shared"])
def test_falcon_without_weights_takes_the_steps_of_dropout(gradient: str, tiny: Dataset) -> None:
    falcon = fitted(
        "falcon",
        tiny,
        epochs=2,
        dropout=0.0,
        entropy_weight=0.0,
        calibration_weight=0.0,
        gradient=gradient,
    )
    plain = fitted("dropout", tiny, epochs=2, dropout=0.0)
    torch.testing.assert_close(log_probs(falcon, tiny), log_probs(plain, tiny))


def test_falcon_training_is_the_authors_loop_written_out(tiny: Dataset) -> None:
    """Two epochs of three batches in plain torch: Adam on the clean batch, SGD on the FGSM one."""
    falcon = Falcon(
        epochs=2, learning_rate=0.01, l2_weight=0.01, dropout=0.0, gradient="exact",
        epsilons=(0.2,), entropy_weight=5.0, calibration_weight=0.5, calibration_learning_rate=0.1,
        bins=5, entropy_form="literal", calibration_form="root",
    )  # fmt: skip
    ours, plain = small_network(), small_network().eval()
    batches = tiny.train.batches(30, shuffle=True, seed=4)
    falcon.fit(ours, batches, tiny.validation.batches())
    adam = torch.optim.Adam(plain.parameters(), lr=0.01)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1)
    for epoch, entropy_weight, calibration_weight in ((1, 2.5, 0.5), (2, 5.0, 0.5)):
        batches.set_epoch(epoch)
        for inputs, labels in batches:
            adam.zero_grad()
            logits = plain(inputs)
            loss = nn.functional.cross_entropy(logits, labels)
            loss = loss + entropy_weight * predictive_entropy_loss(logits, labels, "literal")
            squares = sum(
                p.square().sum() for name, p in plain.named_parameters() if "weight" in name
            )
            (loss + 0.01 * squares).backward()
            adam.step()
            variable = inputs.clone().requires_grad_()
            cross_entropy = nn.functional.cross_entropy(plain(variable), labels)
            (gradient,) = torch.autograd.grad(cross_entropy, variable)
            attacked = (inputs + 0.2 * gradient.sign()).clamp(0, 1)
            sgd.zero_grad()
            (calibration_weight * calibration_loss(plain(attacked), labels, 5, "root")).backward()
            sgd.step()
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_share_zero_never_takes_the_calibration_step(tiny: Dataset) -> None:
    without = fitted("falcon", tiny, epochs=2, share=0.0, dropout=0.0)
    weightless = fitted("falcon", tiny, epochs=2, calibration_weight=0.0, dropout=0.0)
    torch.testing.assert_close(log_probs(without, tiny), log_probs(weightless, tiny))


def test_perturbed_batch_stays_in_bounds_at_an_epsilon_of_the_set(tiny: Dataset) -> None:
    model, falcon = small_network(), Falcon(gradient="exact")
    sizes = set()
    for seed in range(40):
        step = Step(
            model,
            tiny.train.inputs,
            tiny.train.labels,
            1,
            1,
            torch.Generator().manual_seed(seed),
            bounds=Bounds(0.0, 1.0),
        )
        moved = falcon_module.perturbed(falcon, step)
        assert moved.min() >= 0
        assert moved.max() <= 1
        sizes.add(round((moved - tiny.train.inputs).abs().max().item(), 2))
    assert sizes <= set(falcon.epsilons)
    assert len(sizes) >= 8


def test_other_directions_are_random_and_need_no_gradient(tiny: Dataset) -> None:
    step = Step(
        small_network(),
        tiny.train.inputs,
        tiny.train.labels,
        1,
        1,
        torch.Generator().manual_seed(0),
    )
    signs = Falcon(directions=("random_sign",), epsilons=(0.1,))
    moved = falcon_module.perturbed(signs, step) - step.inputs
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, 0.1))
    assert abs(moved.mean().item()) < 0.01
    normal = falcon_module.perturbed(Falcon(directions=("gaussian",), epsilons=(0.1,)), step)
    assert (normal - step.inputs).std().item() == pytest.approx(0.1, rel=0.05)
    assert not Falcon(directions=("gaussian",)).objectives()[0].keeps_input_gradient


def test_plain_loaders_need_bounds(tiny: Dataset) -> None:
    loader = [(tiny.train.inputs, tiny.train.labels)]
    with pytest.raises(UserError, match=r"bounds=Bounds\(0, 1\)"):
        Falcon(epochs=1).fit(small_network(), loader, loader)


def test_settings_go_by_name() -> None:
    with pytest.raises(UserError, match="takes settings by name"):
        L2Dropout(3)  # type: ignore[call-arg]
