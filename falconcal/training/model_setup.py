"""What is done to a model and its optimiser before they are trained."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.errors import UserError
from falconcal.models.sampling import DROPOUTS


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


def weights_to_channels_last(model: nn.Module) -> None:
    """Store convolution weights with channels last, as the images are."""
    for weight in model.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)


def match_weight_layout(optimizer: Optimizer) -> None:
    """Store what an optimiser holds of a weight as the weight is: fused steps ignore strides."""
    for weight, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                state[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)
