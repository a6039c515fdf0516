"""A device that is not there: tensors compute on the CPU, but stand elsewhere and meet no others.

What a machine without an accelerator cannot show otherwise: a tensor made without ``device=``, or
read as if it were on the CPU, fails here as it would on a GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")  # has no values of its own, so that none can be mistaken for it
aten = torch.ops.aten
# a GPU takes numbers from the CPU, and indices
MIXING = {aten.copy_.default, aten.index.Tensor, aten.index_put_.default, aten.index_put.default}


class Elsewhere(Tensor):
    """A tensor of the device that is not there; its values are ``held`` on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls: type["Elsewhere"], inner: Tensor) -> "Elsewhere":
        made: Elsewhere = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=DEVICE, requires_grad=inner.requires_grad,
        )  # fmt: skip
        made.held = inner.detach()
        return made

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        return _run(function, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    """Also sees what makes tensors without taking any."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        return _run(function, args, kwargs or {})


class _FromNumbers(TorchFunctionMode):
    """Sees numbers that become a tensor there, which would have no values on a real meta device."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if function is torch.tensor and kwargs.get("device") == DEVICE:
            return Elsewhere(function(*args, **{**kwargs, "device": "cpu"}))
        return function(*args, **kwargs)


@contextmanager
def pretending() -> Iterator[torch.device]:
    """Give the device for what happens inside."""
    with _FromNumbers(), _Everywhere():
        yield DEVICE


def moved(model: nn.Module) -> nn.Module:
    """Put a model's weights and buffers there."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(Elsewhere(weight.detach()))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = Elsewhere(buffer)
    return model


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = any(isinstance(tensor, Elsewhere) for tensor in tensors)
    asked = kwargs.get("device")
    if there and function not in MIXING:
        for tensor in tensors:
            if not isinstance(tensor, Elsewhere) and tensor.ndim > 0:
                raise RuntimeError(f"{function} met tensors on two devices, {DEVICE} and cpu")
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
        there = torch.device(asked) == DEVICE
    found = function(*_map(_inner, args), **_map(_inner, kwargs))
    return return_and_correct_aliasing(
        function, args, kwargs, _map(Elsewhere, found) if there else found
    )


def _inner(tensor: Tensor) -> Tensor:
    return tensor.held if isinstance(tensor, Elsewhere) else tensor


def _map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    return tree_map(lambda leaf: function(leaf) if isinstance(leaf, Tensor) else leaf, tree)
