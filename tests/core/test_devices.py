"""What computes gives the same on every device, one that is only pretended among them."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

import falconcal
from falconcal.core.method import Method, build_untrained
from falconcal.core.perturbation_point import find_perturbation_point
from falconcal.data import Bounds, Examples
from falconcal.evaluation.assessment import assess
from falconcal.evaluation.under_shift import evaluate
from falconcal.evidence import interval
from falconcal.methods import METHODS, SNGP, Falcon
from falconcal.methods.falcon import calibration_terms
from falconcal.methods.falcon_directions import DIRECTIONS
from falconcal.methods.variational import VariationalMethod
from falconcal.metrics import METRICS
from falconcal.metrics.predictions import Predictions
from falconcal.models import MLP
from falconcal.models.predict import predict
from falconcal.recalibration import Calibrator
from falconcal.shifts import SHIFTS
from falconcal.shifts.crafted import crafted_sensor_shifts
from falconcal.shifts.fgsm import fgsm
from falconcal.shifts.sensor_faults import sensor_shifts
from falconcal.training import Step, TrainingMethod
from tests.helpers.methods_by_kind import CALIBRATORS
from tests.helpers.pretended_device import DEVICE, moved, pretending
from tests.helpers.small_data import stripes

CPU = torch.device("cpu")
BOUNDS = Bounds(0.0, 1.0)
OTHERS = ["pretended", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
TRAINED = {name: made for name in METHODS if isinstance(made := METHODS[name](), TrainingMethod)}
STEPPED = [  # without auxiliary networks
    name
    for name, method in TRAINED.items()
    if all(objective.network is None for objective in method.objectives())
]


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Each device beside the CPU, also one that is not there."""
    if request.param != "pretended":
        yield torch.device(request.param)
        return
    with pretending() as device:
        yield device


def check(compute: Callable[[torch.device], Tensor], other: torch.device) -> None:
    """Compute on both; the pretended device gives the same bits, a real one may round."""
    found, expected = compute(other), compute(CPU)
    slack = 0.0 if other == DEVICE else 1e-4
    assert found.device == other or found.ndim == 0
    torch.testing.assert_close(found.cpu(), expected, rtol=slack, atol=slack, equal_nan=True)


def predictions(device: torch.device) -> Predictions:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(60, 3, generator=generator)
    labels = torch.randint(3, (60,), generator=generator)
    return Predictions.from_logits(logits.to(device), labels.to(device))


def test_the_pretended_device_notices_what_a_real_one_would() -> None:
    with pretending() as device:
        there, here = torch.arange(3.0, device=device), torch.arange(3.0)
        assert float((there + 1).sum()) == 6.0
        assert torch.equal((2 * there).cpu(), 2 * here)
        with pytest.raises(RuntimeError, match="two devices"):
            _ = there + here
        with pytest.raises((RuntimeError, TypeError)):
            there.numpy()


@pytest.mark.parametrize("metric", METRICS)
def test_metrics(metric: str, other: torch.device) -> None:
    value = METRICS[metric](predictions(other))
    assert value == pytest.approx(METRICS[metric](predictions(CPU)), abs=1e-9)


@pytest.mark.end_to_end
def test_intervals_and_the_whole_assessment(other: torch.device) -> None:
    for metric in ("ece", "classwise_ece"):
        there, here = interval(predictions(other), metric), interval(predictions(CPU), metric)
        assert (there.low, there.high) == pytest.approx((here.low, here.high))
    assert assess(predictions(other)).examples == 60


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
def test_calibrators(name: str, other: torch.device) -> None:
    def calibrated(device: torch.device) -> Tensor:
        method = METHODS[name]()
        assert isinstance(method, Calibrator)
        if method.observes:
            pytest.skip("looks at examples: see the models")
        calibration = _on(method.fit_predictions(predictions(device)), device)
        found: Tensor = calibration(predictions(device).log_probs)
        return found

    check(calibrated, other)


# those that need no more than the inputs
@pytest.mark.end_to_end
@pytest.mark.parametrize("name", [name for name, shift in SHIFTS.items() if not shift.needs])
def test_shifts(name: str, other: torch.device) -> None:
    def shifted(device: torch.device) -> Tensor:
        inputs = stripes(3).inputs
        if name.startswith("word_"):
            inputs = torch.arange(1, 61).reshape(3, 20)  # tokens
        elif name in {**sensor_shifts(), **crafted_sensor_shifts()}:
            inputs = inputs[:, 0]  # (N, time, channels)
        elif name.startswith("corrupt_"):
            inputs = nn.functional.pad(inputs.expand(-1, 3, -1, -1), (2, 2, 2, 2))
        return SHIFTS[name].at(inputs.to(device), 2)

    check(shifted, other)


class Words(nn.Module):
    """A model of tokens whose embedding is found."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:  # (N, length) -> (N, 3)
        logits: Tensor = self.last(self.embedding(tokens).mean(1))
        return logits


def _on(model: nn.Module, device: torch.device) -> nn.Module:
    return moved(model) if device == DEVICE else model.to(device)


def make_step(kind: str, device: torch.device, method: Method | None = None) -> Step:
    """Return a batch of numbers or of tokens with its model, as a method sees them."""
    torch.manual_seed(0)
    network = Words() if kind == "tokens" else MLP(3, 49 if kind == "images" else 7, (8,))
    wrapped = isinstance(method, VariationalMethod | SNGP)
    layers = build_untrained(method, network) if wrapped else network
    model = _on(layers, device).train()
    generator = torch.Generator().manual_seed(0)
    rows, tokens = torch.rand(6, 7), torch.randint(9, (6, 5))
    images = torch.rand(6, 1, 7, 7)
    inputs = {"tokens": tokens, "rows": rows, "images": images}[kind].to(device)
    bounds = None if kind == "tokens" else BOUNDS
    labels = (torch.arange(6) % 3).to(device)
    perturbation_point = find_perturbation_point(model, inputs)
    return Step(
        model,
        inputs,
        labels,
        1,
        2,
        generator,
        bounds=bounds,
        unwrapped_model=model,
        perturbation_point=perturbation_point,
        training_examples=6,
    )


def gradient(step: Step, terms: dict[str, Tensor]) -> Tensor:
    torch.stack(list(terms.values())).sum().backward()
    weights = [
        weight.grad.flatten() for weight in step.model.parameters() if weight.grad is not None
    ]
    return torch.cat(weights)


IMAGES_ALONE = {"augmix"}
# the autocast of mnf knows real devices
BATCHES = [(name, "rows") for name in STEPPED if name not in {"mnf", *IMAGES_ALONE}]
BATCHES += [
    (name, "tokens")
    for name in STEPPED
    if not isinstance(METHODS[name](), VariationalMethod) and name not in IMAGES_ALONE
]
BATCHES += [(name, "images") for name in sorted(IMAGES_ALONE)]


@pytest.mark.end_to_end
@pytest.mark.parametrize(("name", "kind"), BATCHES)
def test_objectives_of_methods(name: str, kind: str, other: torch.device) -> None:
    def run(device: torch.device) -> Tensor:
        method = TRAINED[name]
        step = make_step(kind, device, method)
        return torch.cat([gradient(step, one.terms(step)) for one in method.objectives()])

    check(run, other)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_perturbations_of_falcon(direction: str, other: torch.device) -> None:
    falcon = Falcon(directions=(direction,), gradient="exact", calibration_weight=1.0)

    def run(device: torch.device) -> Tensor:
        step = make_step("rows", device)
        return gradient(step, calibration_terms(falcon, step))

    check(run, other)


@pytest.mark.end_to_end
def test_attacks_predictions_and_evaluation(other: torch.device) -> None:
    def attacked(device: torch.device) -> Tensor:
        step = make_step("rows", device)
        return fgsm(step.model, step.inputs, step.labels, 0.1, BOUNDS)

    def predicted(device: torch.device) -> Tensor:
        step = make_step("rows", device)
        return predict(step.model, [(step.inputs, step.labels)]).log_probs.sum()

    def evaluated(device: torch.device) -> Tensor:
        step = make_step("rows", device)
        data = Examples(step.inputs, step.labels)
        rows = evaluate(step.model, data, [SHIFTS["sensor_noise"]])
        return torch.from_numpy(rows["value"].to_numpy().copy()).nansum()

    for compute in (attacked, predicted, evaluated):
        check(compute, other)


@pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
def test_the_estimator_trains_where_it_is_told_to(device: torch.device) -> None:
    rows, labels = torch.rand(30, 4).numpy(), (torch.arange(30) % 3).numpy()
    model = falconcal.FalconClassifier(
        epochs=1, random_state=0, early_stopping=False, settings={"accelerator": device.type}
    )
    assert model.fit(rows, labels).predict_proba(rows).shape == (30, 3)
