"""The fast gradient sign method (Goodfellow, Shlens & Szegedy, ICLR 2015)."""

from numbers import Real

from torch import Tensor, nn

from falconcal.core.array_conversion import ArrayLike, as_tensor
from falconcal.core.module_state import check_module, explain_model_errors
from falconcal.core.perturbation_point import input_gradient
from falconcal.data import Bounds
from falconcal.data.input_checks import check_labels
from falconcal.errors import UserError, described
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

# the paper's set E, as fractions of the input range
EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)


def adversarial_shifts() -> dict[str, Shift]:
    """Return FGSM by name; it follows the gradient of the model that is evaluated.

    Returns:
        The shift ``fgsm``, which needs the model, the labels and the bounds.

    Example:
        >>> from falconcal.shifts import adversarial_shifts
        >>> adversarial_shifts()["fgsm"].needs
        ('model', 'labels', 'bounds')
    """
    summary = "moved up the model's own loss by 0.05 to 0.45 of the range (FGSM)"
    needs = ("model", "labels", "bounds")
    return {"fgsm": Shift("fgsm", EPSILONS, apply_fgsm, summary, needs=needs)}


def apply_fgsm(
    inputs: Tensor,
    epsilon: float,
    noise: KeyedNoise,  # noqa: ARG001 - an attack is not random
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
    with explain_model_errors(inputs):
        gradient = input_gradient(model, inputs, labels)
    return perturb(inputs, gradient.sign(), epsilon, bounds)


def perturb(
    inputs: Tensor, direction: Tensor, epsilon: float | Tensor, bounds: Bounds | None
) -> Tensor:
    """Return ``clip(x + eps * range * direction)``; without bounds, range 1 and no clip."""
    if bounds is None:
        return inputs.detach() + epsilon * direction
    return bounds.clip(inputs.detach() + epsilon * bounds.range_like(inputs) * direction)
