"""Every method of the table under one contract, and what is special to each."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from falconcal.core.method import build_untrained, with_seed
from falconcal.core.perturbation_point import find_perturbation_point
from falconcal.data import Bounds, Dataset, Examples
from falconcal.errors import UserError
from falconcal.methods import (
    METHODS,
    Evidential,
    Falcon,
    L2Dropout,
    Mixup,
    make_method,
    plain_settings,
)
from falconcal.methods import falcon as falcon_module
from falconcal.methods import mixup as mixup_module
from falconcal.methods.evidential import EvidenceForm, evidential_terms
from falconcal.metrics import accuracy
from falconcal.models.predict import predict
from falconcal.recalibration import Calibrator, Temperature
from falconcal.shifts.fgsm import fgsm
from falconcal.studies.run_files import load_weights, save_weights
from falconcal.training import Step, TrainingMethod
from falconcal.training.losses import (
    EvidentialForm,
    calibration_loss,
    misleading_evidence,
    predictive_entropy_loss,
)
from tests.helpers.docs_tables import REWRITE
from tests.helpers.methods_by_kind import BASED, TRAINED, made, settings_of
from tests.helpers.paths import ROOT
from tests.helpers.small_data import small_network
from tests.helpers.stripes import Scaling

QUICK = {"epochs": 25, "learning_rate": 0.01}
# a few steps teach these networks little, and falconcal rightly says so; and what they do learn has
# no mistakes on which a temperature could settle
pytestmark = [
    pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning"),
]


def fitted(name: str, tiny: Dataset, seed: int = 0, **settings: object) -> nn.Module:
    method = with_seed(made(name, **{**QUICK, **settings}), seed)
    batches = tiny.train.batches(30, shuffle=True, seed=seed)
    return method.fit(small_network(seed=0), batches, tiny.validation.batches())


def log_probs(model: nn.Module, tiny: Dataset) -> Tensor:
    return predict(model, tiny.test).log_probs


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_it_learns_and_gives_a_normalised_distribution(
    name: str, tiny: Dataset, device: torch.device
) -> None:
    model = fitted(name, tiny, accelerator=device.type)
    assert {weight.device.type for weight in model.parameters()} == {device.type}
    assert not any(module.training for module in model.modules())
    predictions = predict(model, tiny.test)
    assert accuracy(predictions) > 0.9
    assert predictions.log_probs.isfinite().all()
    torch.testing.assert_close(predictions.log_probs.exp().sum(1), torch.ones(30).double())


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_result_other_seed_other_result(name: str, tiny: Dataset) -> None:
    first, second = (log_probs(fitted(name, tiny, seed=1, epochs=3), tiny) for _ in range(2))
    other = log_probs(fitted(name, tiny, seed=2, epochs=3), tiny)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_settings_and_weights_are_all_it_takes_to_load_it(
    name: str, tiny: Dataset, tmp_path: Path
) -> None:
    model = fitted(name, tiny, epochs=2)
    save_weights(tmp_path / "weights.safetensors", model)
    settings = json.dumps(plain_settings(made(name, **{**QUICK, "epochs": 2})))
    structure = build_untrained(make_method(json.loads(settings)), small_network(seed=5))
    loaded = load_weights(tmp_path / "weights.safetensors", structure)
    assert not any(module.training for module in loaded.modules())
    assert torch.equal(log_probs(model, tiny), log_probs(loaded, tiny))
    assert torch.equal(log_probs(model, tiny), log_probs(copy.deepcopy(loaded), tiny))


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_weights_of_another_structure_are_refused(name: str, tiny: Dataset, tmp_path: Path) -> None:
    model = fitted(name, tiny, epochs=1)
    save_weights(tmp_path / "weights.safetensors", model)
    with pytest.raises(UserError, match=r"cannot read the weights .*weights\.safetensors"):
        load_weights(tmp_path / "weights.safetensors", nn.Linear(2, 3))
    save_weights(tmp_path / "weights.safetensors", nn.Linear(2, 3))
    structure = build_untrained(made(name), small_network())
    with pytest.raises(UserError, match=r"cannot read the weights .*weights\.safetensors"):
        load_weights(tmp_path / "weights.safetensors", structure)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_it_survives_a_validation_set_with_a_missing_class(name: str, tiny: Dataset) -> None:
    some = torch.cat([(tiny.validation.labels != 1).nonzero()[:, 0]] * 2)
    inputs, labels = tiny.validation.inputs[some], tiny.validation.labels[some]
    validation = Examples(inputs, labels, tiny.bounds, tiny.classes)
    for keep in ("last", "best"):
        method = made(name, **QUICK, keep=keep)
        model = method.fit(small_network(), tiny.train.batches(30), validation.batches())
        predictions = predict(model, validation)
        assert predictions.log_probs.isfinite().all()
        assert accuracy(predictions) > 0.9


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_its_module_can_be_attacked(name: str, tiny: Dataset) -> None:
    model = fitted(name, tiny, epochs=3)
    attacked = fgsm(model, tiny.test.inputs, tiny.test.labels, 0.1, tiny.bounds)
    assert attacked.isfinite().all()
    assert attacked.dtype == tiny.test.inputs.dtype
    moved = (attacked - tiny.test.inputs).abs().max().item()
    assert moved == pytest.approx(0.0 if name in STEPS else 0.1)


# level between steps, and where no mistake was seen; so without a gradient
STEPS = {"histogram", "isotonic"}


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_a_model_in_inference_mode_is_trained_as_any_other(name: str, tiny: Dataset) -> None:
    """What ``fit`` and ``load`` return is in that mode, and may be trained again."""
    method = made(name, epochs=2)
    given = [small_network(seed=0), small_network(seed=0).eval()]
    first, second = (
        method.fit(model, tiny.train.batches(30), tiny.validation.batches()).state_dict()
        for model in given
    )
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", TRAINED)
def test_a_part_held_in_inference_mode_stays_there(name: str, tiny: Dataset) -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Dropout(0.1), nn.Linear(784, 3))
    model[1].eval()
    fitted = made(name, epochs=1).fit(model, tiny.train.batches(30), tiny.validation.batches())
    (norm,) = [layer for layer in fitted.modules() if isinstance(layer, nn.BatchNorm1d)]
    assert norm.num_batches_tracked == 0


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_a_loader_that_draws_leaves_the_callers_random_state(name: str, tiny: Dataset) -> None:
    data = TensorDataset(tiny.train.inputs, tiny.train.labels)
    loaders: list[Any] = [DataLoader(data, batch_size=30, shuffle=True) for _ in range(2)]
    for loader in loaders:
        loader.bounds = tiny.bounds
    model, state = small_network(), torch.get_rng_state()
    made(name, epochs=1).fit(model, *loaders)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", METHODS)
def test_its_settings_are_frozen_and_survive_plain_data(name: str) -> None:
    method = made(name, epochs=7)
    assert make_method(json.loads(json.dumps(plain_settings(method)))) == method
    assert with_seed(with_seed(method, 3), 0) == method
    setting = "base" if name in BASED else "epochs"
    with pytest.raises(AttributeError):
        setattr(method, setting, 8)


def test_a_method_from_outside_is_a_dataclass() -> None:
    assert make_method({"method": "tests.helpers.stripes:Scaling", "factor": 1.0}) == Scaling(
        factor=1.0
    )
    with pytest.raises(UserError, match=r"'torch\.nn:Identity' to be a dataclass of settings"):
        make_method({"method": "torch.nn:Identity"})


def test_bounds_survive_plain_data_inside_a_base() -> None:
    method = Temperature(base=Falcon(bounds=Bounds(0.0, 2.0)))
    assert make_method(json.loads(json.dumps(plain_settings(method)))) == method


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", METHODS)
def test_empty_data_and_unknown_classes_are_refused(name: str, tiny: Dataset) -> None:
    method, train = made(name, epochs=1), tiny.train.batches(30)
    with pytest.raises(UserError, match="at least one validation batch, got none"):
        method.fit(small_network(), train, [])
    unknown = Examples(tiny.train.inputs, tiny.train.labels - 1, tiny.bounds)
    with pytest.raises(UserError, match="true class for every example, got labels below 0"):
        method.fit(small_network(), unknown.batches(30), tiny.validation.batches())


@pytest.mark.parametrize("name", METHODS)
def test_every_method_and_setting_is_in_the_docs(name: str) -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1, f"docs/methods.md needs one row for {name}: {REWRITE} adds it"
    common = settings_of(TrainingMethod if name in TRAINED else Calibrator)
    common = {"base"} if name in ("ensemble", "falcon_ensemble") else common
    for setting in settings_of(METHODS[name]) - common:
        assert f"`{setting}`" in rows[0]


def test_every_common_setting_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    common = page.partition("Methods that train have in common")[2].partition("\n\n")[0]
    for setting in settings_of(TrainingMethod):
        assert f"`{setting}`" in common
    common = page.partition("Calibrators have in common")[2].partition("\n\n")[0]
    for setting in settings_of(Calibrator):
        assert f"`{setting}`" in common


@pytest.mark.parametrize("name", TRAINED)
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
        ("strategy", "dpp", "strategy should be one of Fabric's, auto, ddp, "),
        ("epoch", 3, r"unknown setting 'epoch'. Did you mean 'epochs'\?"),
    ],
)
def test_wrong_settings_are_refused(name: str, setting: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        METHODS[name](**{setting: value})


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("label_smoothing", "smoothing", 1.5),
        ("focal", "gamma", -1.0),
        ("mixup", "alpha", -0.1),
        ("adversarial", "epsilon", -0.01),
        ("mc_dropout", "samples", 0),
        ("ensemble", "size", 0),
        ("falcon_ensemble", "fresh", "no"),
        ("evidential", "evidence", "tanh"),
        ("evidential", "form", "cubes"),
        ("evidential", "divergence_weight", -1.0),
        ("evidential", "divergence_epochs", 0),
    ],
)
def test_settings_out_of_range_are_refused(name: str, setting: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{setting} should be"):
        METHODS[name](**{setting: value})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("label_smoothing", {"smoothing": 0.0}),
        ("focal", {"gamma": 0.0}),
        ("mixup", {"alpha": 0.0}),
        ("adversarial", {"epsilon": 0.0}),
    ],
)
def test_at_its_neutral_setting_it_takes_the_steps_of_dropout(
    name: str, settings: dict[str, Any], tiny: Dataset
) -> None:
    neutral = fitted(name, tiny, epochs=3, dropout=0.0, l2_weight=0.01, **settings)
    plain = fitted("dropout", tiny, epochs=3, dropout=0.0, l2_weight=0.01)
    torch.testing.assert_close(log_probs(neutral, tiny), log_probs(plain, tiny))
    other = fitted(name, tiny, epochs=3, dropout=0.0, l2_weight=0.01)
    assert not torch.allclose(log_probs(other, tiny), log_probs(plain, tiny))


def first_step(
    tiny: Dataset, seed: int = 0, epoch: int = 1, model: nn.Module | None = None
) -> Step:
    batch = tiny.train.inputs[:8], tiny.train.labels[:8]
    generator = torch.Generator().manual_seed(seed)
    return Step(model or small_network().eval(), *batch, epoch, 20, generator)


def test_mixup_is_the_loss_on_blended_inputs_and_labels(tiny: Dataset) -> None:
    """The cross-entropy against blended one-hot labels, lambda and partners drawn alike."""
    method = Mixup(alpha=0.4)
    terms = mixup_module.mixed_terms(method, first_step(tiny, seed=3))
    again = first_step(tiny, seed=3)
    weight = mixup_module.draw_weight(0.4, again)
    partners = mixup_module.draw_partners(again)
    assert 0 < weight < 1
    assert sorted(partners.tolist()) == list(range(8))
    blended = weight * again.inputs + (1 - weight) * again.inputs[partners]
    labels = nn.functional.one_hot(again.labels, 3).float()
    targets = weight * labels + (1 - weight) * labels[partners]
    expected = nn.functional.cross_entropy(again.model(blended), targets)
    torch.testing.assert_close(terms["cross_entropy"], expected)


@pytest.mark.end_to_end
@pytest.mark.parametrize("alpha", [0.2, 0.4, 1.0])
def test_mixup_draws_its_weight_from_beta(alpha: float, tiny: Dataset) -> None:
    drawn = [mixup_module.draw_weight(alpha, first_step(tiny, seed)) for seed in range(400)]
    assert stats.kstest(drawn, stats.beta(alpha, alpha).cdf).pvalue > 0.001


def test_mixup_refuses_whole_numbers_that_are_no_tokens(tiny: Dataset) -> None:
    words = Examples((tiny.train.inputs * 255).long(), tiny.train.labels)
    with pytest.raises(UserError, match="floating-point"):
        Mixup(epochs=1).fit(small_network(), words.batches(30), words.batches(30))


def test_mixup_blends_the_embedding_of_tokens() -> None:
    """Loss and the gradient of every weight, the embedding's too, are those written out."""
    model = nn.Sequential(nn.Embedding(20, 6), nn.Flatten(), nn.Linear(30, 3))
    tokens, labels = torch.randint(20, (8, 5)), torch.randint(3, (8,))

    def step() -> Step:
        random = torch.Generator().manual_seed(5)
        return Step(
            model,
            tokens,
            labels,
            1,
            1,
            random,
            perturbation_point=find_perturbation_point(model, tokens),
        )

    ours = mixup_module.mixed_terms(Mixup(alpha=0.4), step())["cross_entropy"]
    again = step()
    weight, partners = mixup_module.draw_weight(0.4, again), mixup_module.draw_partners(again)
    embedded = model[0](tokens)
    logits = model[1:](weight * embedded + (1 - weight) * embedded[partners])
    truth = nn.functional.one_hot(labels, 3).float()
    targets = weight * truth + (1 - weight) * truth[partners]
    theirs = nn.functional.cross_entropy(logits, targets)
    torch.testing.assert_close(ours, theirs)
    weights = list(model.parameters())
    gradients = (torch.autograd.grad(loss, weights) for loss in (ours, theirs))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("evidence", ["relu", "softplus", "exp"])
def test_evidential_predicts_alpha_over_strength(evidence: EvidenceForm, tiny: Dataset) -> None:
    """Not the softmax of the network's outputs."""
    network = small_network()
    model = Evidential(evidence=evidence).build(network)
    with torch.no_grad():
        outputs = network.eval()(tiny.test.inputs).double()
    shape = {"relu": outputs.clamp_min(0), "softplus": outputs.exp().log1p(), "exp": outputs.exp()}
    alpha = shape[evidence] + 1
    expected = alpha / alpha.sum(1, keepdim=True)
    torch.testing.assert_close(log_probs(model, tiny).exp(), expected, rtol=1e-6, atol=1e-6)


def test_evidence_of_half_precision_outputs_is_float32() -> None:
    outputs = torch.tensor([[300.0, -1.0]])
    log_alpha = Evidential().build(nn.Identity())(outputs.bfloat16())
    assert log_alpha.dtype == torch.float32
    torch.testing.assert_close(log_alpha.exp(), torch.tensor([[301.0, 1.0]]))


def test_evidential_reaches_its_divergence_weight_over_ten_epochs(tiny: Dataset) -> None:
    method = Evidential(divergence_weight=2.0)
    model = method.build(small_network().eval())
    divergence = {
        epoch: evidential_terms(method, first_step(tiny, epoch=epoch, model=model))["divergence"]
        for epoch in (1, 5, 10, 15)
    }
    step = first_step(tiny, model=model)
    full = 2.0 * misleading_evidence(model(step.inputs), step.labels)
    for epoch, share in ((1, 0.1), (5, 0.5), (10, 1.0), (15, 1.0)):
        torch.testing.assert_close(divergence[epoch], share * full)


@pytest.mark.end_to_end
@pytest.mark.parametrize("form", ["squares", "log", "digamma"])
@pytest.mark.parametrize("evidence", ["relu", "softplus", "exp"])
def test_every_form_of_evidential_learns(
    form: EvidentialForm, evidence: EvidenceForm, tiny: Dataset
) -> None:
    model = fitted("evidential", tiny, form=form, evidence=evidence)
    assert accuracy(predict(model, tiny.test)) > 0.9


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("entropy_weight", -1.0),
        ("calibration_weight", -0.02),
        ("calibration_fraction", 1.1),
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


def test_a_fraction_of_zero_never_takes_the_calibration_step(tiny: Dataset) -> None:
    without = fitted("falcon", tiny, epochs=2, calibration_fraction=0.0, dropout=0.0)
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


@pytest.mark.parametrize("bounds", [None, Bounds(-1.0, 1.0)])
def test_the_direction_mixup_mixes_in_a_part_of_another_example(
    tiny: Dataset, bounds: Bounds | None
) -> None:
    random = torch.Generator().manual_seed(0)
    inputs, labels = tiny.train.inputs, tiny.train.labels
    step = Step(small_network(), inputs, labels, 1, 1, random, bounds=bounds)
    mixed = falcon_module.perturbed(Falcon(directions=("mixup",), epsilons=(0.3,)), step)
    torch.testing.assert_close(mixed[1:], 0.7 * inputs[1:] + 0.3 * inputs[:-1])
    torch.testing.assert_close(mixed[0], 0.7 * inputs[0] + 0.3 * inputs[-1])


@pytest.mark.parametrize("shape", [(50, 2, 12, 9), (50, 12, 5), (50, 12)])
def test_the_direction_erase_blanks_a_box_of_each_example(shape: tuple[int, ...]) -> None:
    """Twice epsilon is its share; all of it stays inside, and no two lie alike."""
    random, inputs = torch.Generator().manual_seed(0), torch.rand(shape)
    step = Step(nn.Identity(), inputs, torch.zeros(50), 1, 1, random, bounds=Bounds(-1.0, 1.0))
    erased = falcon_module.perturbed(Falcon(directions=("erase",), epsilons=(0.25,)), step) == -1
    assert torch.equal(erased, erased[:, :1].expand(shape) if len(shape) == 4 else erased)
    share = erased.float().mean().item()
    assert share == pytest.approx(0.5, abs=0.06)
    assert len({one.numpy().tobytes() for one in erased}) > 3
    nothing = falcon_module.perturbed(Falcon(directions=("erase",), epsilons=(0.0,)), step)
    assert torch.equal(nothing, inputs)


def test_plain_loaders_need_bounds(tiny: Dataset) -> None:
    loader = [(tiny.train.inputs, tiny.train.labels)]
    with pytest.raises(UserError, match=r"bounds=Bounds\(0, 1\)"):
        Falcon(epochs=1).fit(small_network(), loader, loader)


def test_settings_go_by_name() -> None:
    with pytest.raises(UserError, match="takes settings by name"):
        L2Dropout(3)  # type: ignore[call-arg]
