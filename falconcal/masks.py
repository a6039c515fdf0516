"""Masks of dropout that belong to a row and a draw, whatever batch the row is in.

Each row has a random number per feature, looked up by what the row holds, and so has each draw, by
its number. Their product, which wraps, decides on the feature in that draw of that row. Times an
odd number, whole numbers of 32 bits change places: of a row the masks are as random as the draws'
numbers are, and those of two rows have nothing to do with each other.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from falconcal.hashing import keyed_bits, text_key

ATEN = torch.ops.aten


class KeyedMasks(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside a layer's pass, what torch would draw for dropout is looked up instead.

    The batch holds ``draws`` one after another, each of the rows with these keys. In torch's
    inference mode not all that is drawn is seen, so passes are to be made outside of it.
    """

    def __init__(self, seed: int, rows: Tensor, draws: range) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed, self.rows, self.draws = seed, rows, draws  # rows: (N,)
        self.layer, self.calls = 0, dict[int, int]()
        self.axis: int | None = None

    @contextmanager
    def drawing_for(self, layer: int, axis: int | None) -> Iterator[None]:
        """Look up the masks of one layer, whose noise has the rows along an axis."""
        self.layer, self.axis = layer, axis
        with self:
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if func is ATEN.bernoulli_.float:
            return self._bernoulli(*args, **kwargs)
        if func is ATEN.native_dropout.default:
            return self._dropout(*args)
        return func(*args, **kwargs)

    def _bernoulli(self, noise: Tensor, keep: float = 0.5, **_: Any) -> Tensor:
        return noise.copy_(self._kept(noise.shape, keep, noise.device))

    def _dropout(self, inputs: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        del train  # else it would not have been called
        kept = self._kept(inputs.shape, 1 - p, inputs.device)
        return inputs * kept / (1 - p), kept

    def _kept(self, shape: torch.Size, keep: float, device: torch.device) -> Tensor:
        """Return which elements are kept: a mask of the shape."""
        axis = 0 if self.axis is None else self.axis
        # what does not grow with the rows is the same for all of them
        rows = self.rows.new_zeros(1) if self.axis is None else self.rows
        size = shape.numel() // (len(rows) * len(self.draws))
        numbers = torch.arange(self.draws.start, self.draws.stop, device=device)
        draws = self._numbers("draw", numbers, size)[:, None]  # (D, 1, size)
        product = draws * (self._numbers("row", rows.to(device), size) | 1)  # (D, N, size)
        self.calls[self.layer] = self.calls.get(self.layer, 0) + 1
        moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
        return (product < _threshold(keep)).reshape(moved).movedim(0, axis)

    def _numbers(self, kind: str, keys: Tensor, size: int) -> Tensor:
        """Return whole numbers of 32 random bits: (K,) -> (K, size)."""
        call = self.calls.get(self.layer, 0)
        keys = keys + text_key(f"{kind}/{self.seed}/{self.layer}/{call}")
        return keyed_bits(keys, -(-size // 2)).view(torch.int32)[:, :size]


def _threshold(keep: float) -> int:
    """Return the number below which a share of all numbers of 32 bits lies."""
    return min(round(keep * 2**32) - 2**31, 2**31 - 1)


@contextmanager
def masked(
    layers: Sequence[nn.Module], axes: Sequence[int | None], masks: KeyedMasks
) -> Iterator[None]:
    """Let layers look their masks up in passes inside; their inputs have the rows along an axis."""
    own = [layer.__dict__.get("forward") for layer in layers]
    for number, (layer, axis) in enumerate(zip(layers, axes, strict=True)):
        layer.forward = _looking_up(layer, number, axis, masks)
    try:
        yield
    finally:
        for layer, forward in zip(layers, own, strict=True):
            del layer.forward
            if forward is not None:
                layer.forward = forward


def _looking_up(
    layer: nn.Module, number: int, axis: int | None, masks: KeyedMasks
) -> Callable[..., Any]:
    forward = layer.forward

    def run(*given: Any, **named: Any) -> Any:
        with _kernels_seen(layer), masks.drawing_for(number, _axis_of_noise(layer, axis)):
            return forward(*given, **named)

    return run


def _axis_of_noise(layer: nn.Module, axis: int | None) -> int | None:
    """Return where the noise has the rows: inside of these layers they are where torch wants."""
    if axis is None:
        return None
    return 1 if isinstance(layer, nn.RNNBase) else 0 if _attends(layer) else axis


def _kernels_seen(layer: nn.Module) -> AbstractContextManager[object]:
    """Hold back kernels that draw masks by themselves, where nobody sees it."""
    if isinstance(layer, nn.RNNBase):
        return torch.backends.cudnn.flags(enabled=False)
    return sdpa_kernel(SDPBackend.MATH) if _attends(layer) else nullcontext()


def _attends(layer: nn.Module) -> bool:
    return isinstance(layer, nn.MultiheadAttention)
