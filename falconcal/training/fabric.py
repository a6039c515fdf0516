"""Fabric: networks and optimisers wrapped where that does something, and inputs brought there."""

from collections.abc import Callable
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision import Precision
from lightning_fabric.strategies.single_device import SingleDeviceStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.core.model_inputs import Inputs, map_inputs


def set_up(
    fabric: Fabric, network: nn.Module, optimizers: list[Optimizer], **options: Any
) -> tuple[nn.Module, list[Any]]:
    """Return a network and its optimisers as training uses them, on the device of training.

    One process that trains in the weights' own precision needs none of Fabric's wrappers, which
    cost a small network a tenth of its step.
    """
    wrapped, *stepped = fabric.setup(network, *optimizers, **options)
    return (network, [*optimizers]) if is_plain(fabric) else (wrapped, stepped)


def is_plain(fabric: Fabric) -> bool:
    """Return whether Fabric's wrappers change nothing: one process, the weights' own precision."""
    strategy = fabric.strategy
    alone = type(strategy) is SingleDeviceStrategy and type(strategy.precision) is Precision
    return alone and not getattr(fabric, "_callbacks", True)  # a private name of Fabric


def conversion(fabric: Fabric, model: nn.Module) -> Callable[[Inputs], Inputs]:
    """Return what brings inputs to the weights, which are ready for training by now.

    They get the weights' device and type, and then what Fabric's precision asks for.
    """
    weight = next(model.parameters(), torch.empty(0))
    device, own = weight.device, weight.dtype if weight.is_floating_point() else None
    convert: Callable[[Tensor], Tensor] = fabric.strategy.precision.convert_input

    def converted(one: Tensor) -> Tensor:
        return convert(one.to(device, own) if own and one.is_floating_point() else one.to(device))

    return lambda inputs: map_inputs(converted, inputs)
