"""How images and weights of convolutions lie in memory; CPUs are fast with channels last."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.core.model_inputs import Inputs, InputsT, call_model, each_tensor, map_inputs
from falconcal.core.module_state import inference_mode_of, to_weights_dtype


def channels_last(images: Tensor) -> Tensor:
    """Return images (N, C, H, W) with channels last in memory: convolutions on CPUs run faster."""
    images = images.contiguous(memory_format=torch.channels_last)
    if images.shape[1] == 1:  # fits both layouts; only the strides make it channels last
        height, width = images.shape[2:]
        images = images.as_strided(images.shape, (height * width, 1, width, 1))
    return images


def prefer_channels_last(model: nn.Module, inputs: Inputs) -> None:
    """Store weights of convolutions with channels last, unless the model then fails on images.

    Some models can read only the usual layout: ``x.view(len(x), -1)`` after a convolution raises
    with the other. Two examples are tried; the model is otherwise left as it was.
    """
    weights_to_channels_last(model)
    images = any(one.ndim == 4 for one in each_tensor(inputs))
    if images and has_channels_last(model) and not _runs(model, inputs[:2]):
        _store_weights(model, torch.contiguous_format)


def weights_to_channels_last(model: nn.Module) -> None:
    """Store weights of convolutions with channels last, as images are."""
    _store_weights(model, torch.channels_last)


def has_channels_last(model: nn.Module) -> bool:
    """Return whether a convolution's weight is stored with channels last."""
    return any(_is_channels_last(weight) for weight in model.parameters())


def match_weight_layout(optimizer: Optimizer) -> None:
    """Store what an optimiser holds of a weight as the weight is: fused steps ignore strides."""
    for weight, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                state[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def to_model_device(model: nn.Module, inputs: InputsT) -> InputsT:
    """Return inputs where the model's weights are, floating-point ones in the weights' own type.

    Grey images get channels last in memory where the model's weights have it, which changes
    nothing but the speed; other images follow the weights by themselves.
    """
    weight = next(model.parameters(), torch.empty(0))
    last = has_channels_last(model)

    def move(one: Tensor) -> Tensor:
        grey = last and one.ndim == 4 and one.shape[1] == 1
        return (channels_last(one) if grey else one).to(weight.device)

    return to_weights_dtype(model, map_inputs(move, inputs))


def _store_weights(model: nn.Module, layout: torch.memory_format) -> None:
    for weight in model.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=layout)


def _is_channels_last(weight: Tensor) -> bool:
    """Return whether strides say so; kernels of one channel or one pixel fit both layouts."""
    several = weight.ndim == 4 and weight.shape[1] > 1
    return several and weight.stride(1) == 1 and weight.stride(3) == weight.shape[1]


def _runs(model: nn.Module, inputs: Inputs) -> bool:
    """Return whether the model takes inputs with channels last."""
    with torch.random.fork_rng(devices=()), inference_mode_of(model), torch.no_grad():
        try:
            call_model(model, map_inputs(to_channels_last, to_model_device(model, inputs)))
        except Exception:  # what fails with the usual layout too is explained by the first step
            return False
    return True


def to_channels_last(one: Tensor) -> Tensor:
    """Return images with channels last in memory, any other tensor as it is."""
    return channels_last(one) if one.ndim == 4 else one
