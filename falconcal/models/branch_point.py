"""Where the draws of a sampled network part: the layer before which its rows are repeated.

It is found by running the network with the rows repeated there, and with batches of two sizes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import Inputs, call_model, each_tensor, join_inputs
from falconcal.errors import UserError

Layers = dict[str, nn.Module]
Arguments = tuple[int | str, ...]  # of a layer, by number or by name
Axes = dict[str, int | None]  # the axis of a layer's input that holds the rows, by layer


@dataclass(frozen=True)
class BranchPoint:
    """The layer before which the rows of a batch are repeated, once per draw."""

    name: str
    elements: int  # of one example at this layer
    first: bool  # whether its input is the model's own
    arguments: Arguments  # those that hold the rows

    def layer(self, model: nn.Module) -> nn.Module:
        return model.get_submodule(self.name)


def row_axes(model: nn.Module, inputs: Inputs, layers: Layers) -> Axes:
    """Return the axis of each random layer's input that holds the rows: it grows with them.

    A layer whose input has no rows, such as dropout of weights, has no axis.
    """
    try:
        with torch.no_grad():
            shapes, others = (_called(model, rows, layers)[0] for rows in _two_sizes(inputs))
    except Exception:  # a model may do anything with rows it does not expect
        return {}
    return {name: _grown(shape, others.get(name, shape)) for name, shape in shapes.items()}


def _two_sizes(inputs: Inputs) -> tuple[Inputs, Inputs]:
    """Return the inputs, and a batch of another size."""
    return inputs, inputs[:1] if len(inputs) > 1 else join_inputs([inputs, inputs])


def _grown(shape: torch.Size, other: torch.Size) -> int | None:
    sizes = enumerate(zip(shape, other, strict=False))
    return next((axis for axis, (one, two) in sizes if one != two), None)


def find_branch_point(
    model: nn.Module, inputs: Inputs, layers: Layers, axes: Axes
) -> BranchPoint | None:
    """Return the last layer at which the rows can be repeated, or None: then each draw is one pass.

    It is the first random layer, or the block around it where a connection bypasses the layer, and
    so on outwards. A layer will do if, with random layers in inference mode, repeated rows give the
    same outputs as plain ones, and every random layer gets them; this is tried, not guessed.
    """
    with torch.no_grad():
        called, plain = _called(model, inputs, layers)
        if not called:
            raise UserError(
                "expected a random layer that the model calls, found none: sampling needs noise "
                "from layers such as nn.Dropout, not from functions such as functional.dropout."
            )
        if any(axes.get(name) is None for name in called):
            return None
        expected = {name: _doubled(shape, axes[name]) for name, shape in called.items()}
        places = (
            _tried(model, name, inputs, plain, layers, expected)
            for name in _outwards(next(iter(called)))
        )
        return next((place for place in places if place is not None), None)


def _doubled(shape: torch.Size, axis: int | None) -> torch.Size:
    return torch.Size(2 * size if place == axis else size for place, size in enumerate(shape))


def _called(
    model: nn.Module, inputs: Inputs, layers: Layers
) -> tuple[dict[str, torch.Size], Tensor]:
    """Run the model once; return the shape of each layer's first input, and the outputs."""
    called: dict[str, torch.Size] = {}

    def note(_: nn.Module, given: tuple[Any, ...], name: str) -> None:
        called.setdefault(name, getattr(given[0] if given else None, "shape", torch.Size()))

    handles = [
        layer.register_forward_pre_hook(partial(note, name=name)) for name, layer in layers.items()
    ]
    try:
        return called, call_model(model, inputs)
    finally:
        for handle in handles:
            handle.remove()


def _outwards(name: str) -> Iterator[str]:
    """Yield a layer's name, then those of the blocks around it, but not the whole model."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _tried(
    model: nn.Module,
    name: str,
    inputs: Inputs,
    plain: Tensor,
    layers: Layers,
    shapes: dict[str, torch.Size],
) -> BranchPoint | None:
    """Return the branch point if repeating the rows there repeats the plain outputs."""
    try:
        arguments = _with_rows(model, model.get_submodule(name), inputs)
        with repeated_rows(model.get_submodule(name), 2, arguments) as given:
            called, outputs = _called(model, inputs, layers)
    except Exception:  # a model may do anything with rows it does not expect
        return None
    expected = torch.cat([plain, plain])
    same = outputs.shape == expected.shape and torch.allclose(
        outputs, expected, rtol=1e-3, atol=1e-3 * float(plain.abs().max()), equal_nan=True
    )
    if not same or called != shapes:
        return None
    elements, first = -(-given[0].numel() // len(plain)), _is_among(given[0], inputs)
    return BranchPoint(name, elements, first, arguments)


def _with_rows(model: nn.Module, layer: nn.Module, inputs: Inputs) -> Arguments:
    """Return which arguments of a layer hold the rows: those that grow with them."""
    shapes, others = (_given(model, layer, rows) for rows in _two_sizes(inputs))
    return tuple(name for name, shape in shapes.items() if _grown(shape, others[name]) == 0)


def _given(model: nn.Module, layer: nn.Module, inputs: Inputs) -> dict[int | str, torch.Size]:
    """Run the model once; return the shapes of the arguments of a layer's first call."""
    shapes: list[dict[int | str, torch.Size]] = []

    def note(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        every = _by_name(given, named)
        shapes.append({key: one.shape for key, one in every.items() if isinstance(one, Tensor)})

    handle = layer.register_forward_pre_hook(note, with_kwargs=True)
    try:
        call_model(model, inputs)
    finally:
        handle.remove()
    return shapes[0]


def _by_name(given: tuple[Any, ...], named: dict[str, Any]) -> dict[int | str, Any]:
    """Return the arguments of a layer by number or by name."""
    every: dict[int | str, Any] = dict(enumerate(given))
    every.update(named)
    return every


@contextmanager
def repeated_rows(layer: nn.Module, draws: int, arguments: Arguments) -> Iterator[list[Tensor]]:
    """Repeat the rows of the first batch that the layer gets; yield the list that will hold it."""
    batches: list[Tensor] = []

    def multiply(
        _: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if batches:
            return None
        every = _by_name(given, named)
        batches.append(every[arguments[0]].detach())
        # torch.cat keeps the order in memory
        every |= {name: torch.cat([every[name]] * draws) for name in arguments}
        return tuple(every[place] for place in range(len(given))), {
            name: every[name] for name in named
        }

    handle = layer.register_forward_pre_hook(multiply, with_kwargs=True)
    try:
        yield batches
    finally:
        handle.remove()


def _is_among(batch: Tensor, inputs: Inputs) -> bool:
    return any(batch.data_ptr() == tensor.data_ptr() for tensor in each_tensor(inputs))
