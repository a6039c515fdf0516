"""What is done to a model and to its batches before a step."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.data import Batches, Bounds
from falconcal.data.examples import check_batches, check_inputs, mixed_seed
from falconcal.errors import UserError
from falconcal.modes import channels_last, check_module
from falconcal.sampling import DROPOUTS

StatedBounds = Bounds | Literal["data"] | None


def set_dropout(model: nn.Module, probability: float) -> None:
    """Give every dropout layer of the model this probability."""
    layers = [layer for layer in model.modules() if isinstance(layer, DROPOUTS)]
    if not layers and probability > 0:
        raise UserError(
            f"dropout={probability} needs a model with nn.Dropout layers, found none: add them, "
            "or leave dropout=None."
        )
    for layer in layers:
        layer.p = probability


def bounds_of(batches: Batches, stated: StatedBounds, inputs: Tensor) -> Bounds | None:
    """Return the bounds stated, or those that travel with the data; tokens have none."""
    if stated != "data":
        return stated
    if not hasattr(batches, "bounds"):
        if not inputs.is_floating_point():
            return None
        raise UserError(
            "the range of the inputs is not known: state it once, as bounds=Bounds(0, 1), "
            "or bounds=None to leave perturbed inputs unclipped."
        )
    bounds: Bounds | None = batches.bounds
    return bounds


def laid_out(inputs: Tensor) -> Tensor:
    """Return a fresh leaf, images with channels last."""
    return (channels_last(inputs) if inputs.ndim == 4 else inputs).detach()


def batch_random(seed: int, epoch: int, index: int) -> torch.Generator:
    """Return the random numbers of one batch: whoever trains it draws the same."""
    return torch.Generator().manual_seed(mixed_seed(seed, epoch, index))


def check_given(model: object, train: object, validation: object) -> None:
    """Refuse what cannot be a model and batches, before anything is done with them."""
    check_module(model)
    check_batches(train, "training")
    check_batches(validation, "validation")


def check_batch(inputs: Tensor, labels: Tensor, bounds: Bounds | None = None) -> None:
    """Refuse in the first epoch what would fail later with a riddle, or be clipped in silence."""
    check_inputs(inputs)
    if bounds is not None:
        bounds.check(inputs)
    if (labels < 0).any():
        raise UserError("training needs a true class for every example, got labels below 0.")


def lay_out_weights(model: nn.Module) -> None:
    """Lay convolution weights out with channels last, as the images are."""
    for weight in model.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)


def lay_out_state(optimizer: Optimizer) -> None:
    """Lay what an optimiser holds of a weight out as the weight is: fused steps ignore strides."""
    for weight, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                state[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)
