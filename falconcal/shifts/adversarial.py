"""The fast gradient sign method (Goodfellow, Shlens & Szegedy, ICLR 2015)."""

from torch import Tensor, nn

from falconcal.data import Bounds
from falconcal.entrance import input_gradient

# the paper's set E, as shares of the input range
EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)


def fgsm(
    model: nn.Module, inputs: Tensor, labels: Tensor, epsilon: float, bounds: Bounds | None
) -> Tensor:
    """Return the batch moved by ``epsilon`` of the range up the loss, model in inference mode."""
    return move(inputs, input_gradient(model, inputs, labels).sign(), epsilon, bounds)


def move(inputs: Tensor, direction: Tensor, epsilon: float, bounds: Bounds | None) -> Tensor:
    """Return ``clip(x + eps * range * direction)``; without bounds, range 1 and no clip."""
    if bounds is None:
        return inputs.detach() + epsilon * direction
    return bounds.clip(inputs.detach() + epsilon * bounds.range * direction)
