"""The fast gradient sign method (Goodfellow, Shlens & Szegedy, ICLR 2015)."""

from numbers import Real

from torch import Tensor, nn

from falconcal.data import Bounds
from falconcal.data.conversion import ArrayLike, as_tensor
from falconcal.data.examples import check_labels
from falconcal.entrance import input_gradient
from falconcal.errors import UserError, described
from falconcal.modes import check_module, explained
from falconcal.shifts.noise import Noise
from falconcal.shifts.shift import Shift

# the paper's set E, as shares of the input range
EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)


def adversarial_shifts() -> dict[str, Shift]:
    """Return FGSM by name; it needs the model that is evaluated, whose own gradient it follows."""
    summary = "moved up the model's own loss by 0.05 to 0.45 of the range (FGSM)"
    needs = ("model", "labels", "bounds")
    return {"fgsm": Shift("fgsm", EPSILONS, attacked, summary, needs=needs)}


def attacked(
    inputs: Tensor,
    epsilon: float,
    noise: Noise,  # noqa: ARG001 - an attack is not random
    *,
    model: nn.Module,
    labels: Tensor,
    bounds: Bounds | None,
) -> Tensor:
    """Return the batch under FGSM; the model is left as it was."""
    return fgsm(model, inputs, labels, epsilon, bounds).to(inputs)


def fgsm(
    model: nn.Module, inputs: ArrayLike, labels: ArrayLike, epsilon: float, bounds: Bounds | None
) -> Tensor:
    """Return the batch moved by ``epsilon`` of the range up the loss, model in inference mode."""
    check_module(model)
    inputs, labels = as_tensor(inputs, "inputs"), as_tensor(labels, "labels")
    check_labels(labels, len(inputs), None)
    if not isinstance(epsilon, Real) or not isinstance(bounds, Bounds | None):
        raise UserError(
            "expected epsilon to be a number and bounds falconcal.Bounds or None, got "
            f"{described(epsilon)} and {described(bounds)}."
        )
    if len(labels) and labels.min() < 0:
        raise UserError("fgsm needs a true class for every example, got labels of -1.")
    with explained(inputs):
        gradient = input_gradient(model, inputs, labels)
    return move(inputs, gradient.sign(), epsilon, bounds)


def move(inputs: Tensor, direction: Tensor, epsilon: float, bounds: Bounds | None) -> Tensor:
    """Return ``clip(x + eps * range * direction)``; without bounds, range 1 and no clip."""
    if bounds is None:
        return inputs.detach() + epsilon * direction
    return bounds.clip(inputs.detach() + epsilon * bounds.range * direction)
