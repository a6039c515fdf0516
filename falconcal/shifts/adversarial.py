"""The fast gradient sign method (Goodfellow, Shlens & Szegedy, ICLR 2015)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.data import Bounds
from falconcal.modes import evaluating, placed

# the paper's set E, as shares of the input range
EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)


def fgsm(
    model: nn.Module, inputs: Tensor, labels: Tensor, epsilon: float, bounds: Bounds | None
) -> Tensor:
    """Return the batch moved by ``epsilon`` of the range up the loss, model in inference mode."""
    return move(inputs, input_gradient(model, inputs, labels).sign(), epsilon, bounds)


def input_gradient(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of the cross-entropy by the inputs; the model is left as it was."""
    with evaluating(model), torch.enable_grad():
        variable = placed(model, inputs.detach()).requires_grad_()
        target = labels.long().to(variable.device)
        loss = functional.cross_entropy(model(variable), target, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, variable)
    return gradient.to(inputs)


def move(inputs: Tensor, direction: Tensor, epsilon: float, bounds: Bounds | None) -> Tensor:
    """Return ``clip(x + eps * range * direction)``; without bounds, range 1 and no clip."""
    if bounds is None:
        return inputs.detach() + epsilon * direction
    return bounds.clip(inputs.detach() + epsilon * bounds.range * direction)
