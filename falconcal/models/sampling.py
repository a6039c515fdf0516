"""Sampling predictors: a network with random layers predicts the mean of many draws.

Probabilities are averaged, never logits. What comes before the first random layer is the same in
every draw and is computed once: at that layer the batch of N rows is repeated to draws * N rows,
all rows of one draw before those of the next, and the rest of the network runs on that batch.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.hashing import content_keys
from falconcal.core.model_inputs import (
    Inputs,
    call_model,
    each_tensor,
    join_inputs,
    packed,
)
from falconcal.core.module_state import at_least_float32
from falconcal.core.randomness import combined_seed, seeded_random
from falconcal.errors import UserError
from falconcal.models.keyed_masks import KeyedMasks, masked

DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
IsRandom = Callable[[nn.Module], bool]
Layers = dict[str, nn.Module]
Arguments = tuple[int | str, ...]  # of a layer, by number or by name
Axes = dict[str, int | None]  # the axis of a layer's input that holds the rows, by layer
ELEMENTS = 2**20  # at most, in a batch after its rows are repeated: it should fit the cache


class SampledModel(nn.Module):
    """A network with random layers: one draw per pass in training, the mean of many in inference.

    In training mode it is the network itself. In inference mode it returns the normalised
    log-probabilities of the mean over ``samples`` draws. The prediction for a row depends on the
    seed, the number of samples and the row itself, not on the other rows of its batch; the caller's
    random state does not change.

    ``is_random`` says which layers are random. Such a layer must draw when its own ``training`` is
    true, and be its mean when it is not; while draws are taken, only the random layers are in
    training mode. Dropout masks depend on the row and on the number of the draw
    (``falconcal.models.keyed_masks``). A layer that shares its noise among rows, such as one whose
    weights are drawn, has an attribute ``draws`` with one seed per draw: its batch then holds that
    many draws, all rows of one draw before those of the next (``rows.unflatten(0, (len(draws),
    -1))``), and each gets the noise of its seed. Outside of sampling ``draws`` is empty.
    """

    def __init__(self, model: nn.Module, samples: int, is_random: IsRandom, seed: int = 0) -> None:
        super().__init__()
        self.model, self.samples, self.is_random, self.seed = model, samples, is_random, seed
        # without this, every submodule would seem to be fixed in the other mode
        self.training = model.training
        # both are found once per kind of batch
        self.fans: dict[tuple[object, ...], BranchPoint | None] = {}
        self.axes: dict[tuple[object, ...], Axes] = {}

    def forward(self, *given: Any, **named: Any) -> Tensor:  # (N, ...) -> (N, C)
        inputs = packed(given, named)
        if self.training:
            return call_model(self.model, inputs)
        if torch.is_inference_mode_enabled():  # in which masks cannot be looked up
            with torch.inference_mode(False), torch.no_grad():
                return self._mean(inputs.clone())
        return self._mean(inputs)

    def _mean(self, inputs: Inputs) -> Tensor:
        layers = {
            name: layer for name, layer in self.model.named_modules() if self.is_random(layer)
        }
        with _every_layer_called(), seeded_random(self.seed):
            fan, axes = self._found(inputs, layers)
            drawing = Drawing(layers, axes, self.seed, _row_keys(inputs))
            if fan is None:
                return self._passes(inputs, drawing)
            return self._fanned(inputs, drawing, fan)

    def _found(self, inputs: Inputs, layers: Layers) -> "tuple[BranchPoint | None, Axes]":
        # a single example can be broadcast where several cannot
        kind = (len(inputs) == 1, inputs.shape[1:], *layers)
        if kind not in self.axes:
            self.axes[kind] = row_axes(self.model, inputs, layers)
        if kind not in self.fans:
            self.fans[kind] = find_branch_point(self.model, inputs, layers, self.axes[kind])
        return self.fans[kind], self.axes[kind]

    def _fanned(self, inputs: Inputs, drawing: "Drawing", fan: "BranchPoint") -> Tensor:
        if inputs.is_floating_point() and not fan.first:
            examples = max(1, ELEMENTS // (self.samples * fan.elements))
            rows = (slice(start, start + examples) for start in range(0, len(inputs), examples))
            parts = (
                self._draws_at_once(inputs[part], drawing.part(part), fan, range(self.samples))
                for part in rows
            )
            return torch.cat([mean_probabilities(part) for part in parts])
        # at the first layer splitting the examples saves nothing, and weights would be drawn again
        # for each part; an attack replaces the rows of an embedding, and replaces all of them
        size = max(1, ELEMENTS // (len(inputs) * fan.elements))
        draws = (
            range(start, min(start + size, self.samples)) for start in range(0, self.samples, size)
        )
        parts = (self._draws_at_once(inputs, drawing, fan, some) for some in draws)
        return mean_probabilities(torch.cat(list(parts)))

    def _draws_at_once(
        self, inputs: Inputs, drawing: "Drawing", fan: "BranchPoint", draws: range
    ) -> Tensor:
        with drawing.of(draws), _fanning(fan.layer(self.model), len(draws), fan.arguments):
            logits = call_model(self.model, inputs)  # (draws * N, C)
        return logits.reshape(len(draws), -1, logits.shape[-1])  # (draws, N, C)

    def _passes(self, inputs: Inputs, drawing: "Drawing") -> Tensor:
        return mean_probabilities(
            torch.stack([self._pass(inputs, drawing, number) for number in range(self.samples)])
        )

    def _pass(self, inputs: Inputs, drawing: "Drawing", number: int) -> Tensor:
        with drawing.of(range(number, number + 1)):
            return call_model(self.model, inputs)  # (N, C)


def _row_keys(inputs: Inputs) -> Tensor:
    """Return a key of what each row holds, in all of its inputs: (N,)."""
    if isinstance(inputs, Tensor):
        return content_keys(inputs)
    every = inputs.tensors
    order = sorted(every, key=lambda name: (not every[name].is_floating_point(), str(name)))
    keys = [content_keys(every[name].reshape(len(inputs), -1)) for name in order]
    return torch.stack([(2 * number + 1) * key for number, key in enumerate(keys)]).sum(0)


def _is_among(batch: Tensor, inputs: Inputs) -> bool:
    return any(batch.data_ptr() == tensor.data_ptr() for tensor in each_tensor(inputs))


def mean_probabilities(logits: Tensor) -> Tensor:
    """Return the log of the mean of probabilities over draws or members: (S, N, C) -> (N, C)."""
    return at_least_float32(logits).log_softmax(2).logsumexp(0) - math.log(len(logits))


@dataclass(frozen=True)
class BranchPoint:
    """The layer before which the rows of a batch are repeated, once per draw."""

    name: str
    elements: int  # of one example at this layer
    first: bool  # whether its input is the model's own
    arguments: Arguments  # those that hold the rows

    def layer(self, model: nn.Module) -> nn.Module:
        return model.get_submodule(self.name)


@dataclass(frozen=True)
class Drawing:
    """The random layers, and the keys of their noise."""

    layers: Layers
    axes: Axes
    seed: int
    rows: Tensor  # (N,), one key per row

    def part(self, rows: slice) -> "Drawing":
        return replace(self, rows=self.rows[rows])

    @contextmanager
    def of(self, draws: range) -> Iterator[None]:
        """Within this context the random layers, and no others, draw: these draws of the rows."""
        masks = KeyedMasks(self.seed, self.rows, draws)
        free = {name: layer for name, layer in self.layers.items() if not hasattr(layer, "draws")}
        axes = [self.axes.get(name) for name in free]
        with _in_training(self.layers), self._sharing(draws), masked([*free.values()], axes, masks):
            yield

    @contextmanager
    def _sharing(self, draws: range) -> Iterator[None]:
        """Give layers that share their noise among rows the seeds of the draws."""
        sharing = [layer for layer in self.layers.values() if hasattr(layer, "draws")]
        try:
            for number, layer in enumerate(sharing):
                seeds = tuple(combined_seed(self.seed, number, draw) for draw in draws)
                layer.draws = seeds  # type: ignore[assignment]
            yield
        finally:
            for layer in sharing:
                layer.draws = ()  # type: ignore[assignment]


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
        return next((fan for fan in places if fan is not None), None)


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
        with _fanning(model.get_submodule(name), 2, arguments) as given:
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
def _fanning(layer: nn.Module, draws: int, arguments: Arguments) -> Iterator[list[Tensor]]:
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


@contextmanager
def _in_training(layers: Layers) -> Iterator[None]:
    """Put these layers, and no others, into training mode; restore their modes afterwards."""
    modes = [(layer, layer.training) for layer in layers.values()]
    try:
        for layer, _ in modes:
            layer.training = True
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode


@contextmanager
def _every_layer_called() -> Iterator[None]:
    """Switch off torch's fast path, which does not call the layers inside a transformer layer."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
