"""Sampling predictors: a network with random layers answers by the average of many draws.

Probabilities are averaged, never logits. What comes before the first random layer is the same in
every draw and is computed once: there the batch of N rows becomes one of draws * N rows, the rows
of one draw after those of another, and goes on as one batch.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.data.examples import mixed_seed
from falconcal.errors import UserError
from falconcal.hashing import content_keys
from falconcal.losses import wide
from falconcal.masks import KeyedMasks, masked
from falconcal.modes import seeded_random

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
Axes = dict[str, int | None]  # of what a layer is given: the one along which the rows lie
ELEMENTS = 2**20  # that a batch may hold where its rows are multiplied: it should fit the cache


class Sampled(nn.Module):
    """A network with random layers: one draw a pass in training, the mean of many in inference.

    In training mode it is the network itself. In inference mode it returns the normalised
    log-probabilities of the mean over ``samples`` draws. The answer to a row depends on the seed,
    the number of samples and the row itself, not on the batch that it is in; the caller's random
    state is left as it was.

    What a random layer must do, and ``is_random`` tells which layers are: draw when its own
    ``training`` is true, and be its mean when it is not. While draws are taken the random layers
    alone are in training mode. What they draw for dropout belongs to a row and a draw
    (``falconcal.masks``). One that shares its noise among rows, such as weights that are drawn, has
    an attribute ``draws``, a seed for each draw: the batch it is given then holds that many draws,
    the rows of one after those of another (``rows.unflatten(0, (len(draws), -1))``), each to have
    the noise of its seed. Outside of sampling there are none.
    """

    def __init__(self, model: nn.Module, samples: int, is_random: IsRandom, seed: int = 0) -> None:
        super().__init__()
        self.model, self.samples, self.is_random, self.seed = model, samples, is_random, seed
        self.training = model.training  # or every part would seem held in the other mode
        # both are found once for each kind of batch
        self.fans: dict[tuple[object, ...], Fan | None] = {}
        self.axes: dict[tuple[object, ...], Axes] = {}

    def forward(self, inputs: Tensor) -> Tensor:  # (N, ...) -> (N, C)
        if self.training:
            logits: Tensor = self.model(inputs)
            return logits
        if torch.is_inference_mode_enabled():  # where masks cannot be looked up
            with torch.inference_mode(False), torch.no_grad():
                return self._mean(inputs.clone())
        return self._mean(inputs)

    def _mean(self, inputs: Tensor) -> Tensor:
        layers = {
            name: layer for name, layer in self.model.named_modules() if self.is_random(layer)
        }
        with _every_layer_called(), seeded_random(self.seed):
            fan, axes = self._found(inputs, layers)
            drawing = Drawing(layers, axes, self.seed, content_keys(inputs))
            if fan is None:
                return self._passes(inputs, drawing)
            return self._fanned(inputs, drawing, fan)

    def _found(self, inputs: Tensor, layers: Layers) -> "tuple[Fan | None, Axes]":
        # a single example can be broadcast where several cannot
        kind = (len(inputs) == 1, inputs.shape[1:], *layers)
        if kind not in self.axes:
            self.axes[kind] = row_axes(self.model, inputs, layers)
        if kind not in self.fans:
            self.fans[kind] = find_fan(self.model, inputs, layers, self.axes[kind])
        return self.fans[kind], self.axes[kind]

    def _fanned(self, inputs: Tensor, drawing: "Drawing", fan: "Fan") -> Tensor:
        if inputs.is_floating_point() and not fan.first:
            examples = max(1, ELEMENTS // (self.samples * fan.elements))
            rows = (slice(start, start + examples) for start in range(0, len(inputs), examples))
            parts = (
                self._draws_at_once(inputs[part], drawing.part(part), fan, range(self.samples))
                for part in rows
            )
            return torch.cat([mean_probabilities(part) for part in parts])
        # at the first layer nothing is saved by parting the examples, and weights would be drawn
        # for each part; an attack puts other rows in the place of an embedding's, all of them
        size = max(1, ELEMENTS // (len(inputs) * fan.elements))
        draws = (
            range(start, min(start + size, self.samples)) for start in range(0, self.samples, size)
        )
        parts = (self._draws_at_once(inputs, drawing, fan, some) for some in draws)
        return mean_probabilities(torch.cat(list(parts)))

    def _draws_at_once(
        self, inputs: Tensor, drawing: "Drawing", fan: "Fan", draws: range
    ) -> Tensor:
        with drawing.of(draws), _fanning(fan.layer(self.model), len(draws), fan.arguments):
            logits: Tensor = self.model(inputs)  # (draws * N, C)
        return logits.reshape(len(draws), -1, logits.shape[-1])  # (draws, N, C)

    def _passes(self, inputs: Tensor, drawing: "Drawing") -> Tensor:
        return mean_probabilities(
            torch.stack([self._pass(inputs, drawing, number) for number in range(self.samples)])
        )

    def _pass(self, inputs: Tensor, drawing: "Drawing", number: int) -> Tensor:
        with drawing.of(range(number, number + 1)):
            logits: Tensor = self.model(inputs)  # (N, C)
        return logits


def mean_probabilities(logits: Tensor) -> Tensor:
    """Return the log of the mean of probabilities over draws or members: (S, N, C) -> (N, C)."""
    return wide(logits).log_softmax(2).logsumexp(0) - math.log(len(logits))


@dataclass(frozen=True)
class Fan:
    """The layer at whose entrance the rows of a batch are multiplied."""

    name: str
    elements: int  # an example has there
    first: bool  # it is given the inputs themselves
    arguments: Arguments  # that hold the rows

    def layer(self, model: nn.Module) -> nn.Module:
        return model.get_submodule(self.name)


@dataclass(frozen=True)
class Drawing:
    """What draws, and by which keys."""

    layers: Layers
    axes: Axes
    seed: int
    rows: Tensor  # (N,), the key of each

    def part(self, rows: slice) -> "Drawing":
        return replace(self, rows=self.rows[rows])

    @contextmanager
    def of(self, draws: range) -> Iterator[None]:
        """Let the random layers draw, and them alone, in passes over these draws of the rows."""
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
                seeds = tuple(mixed_seed(self.seed, number, draw) for draw in draws)
                layer.draws = seeds  # type: ignore[assignment]
            yield
        finally:
            for layer in sharing:
                layer.draws = ()  # type: ignore[assignment]


def row_axes(model: nn.Module, inputs: Tensor, layers: Layers) -> Axes:
    """Return where the rows lie in what each random layer is given: the axis that grows with them.

    A layer that is given no rows, such as dropout of weights, has none.
    """
    try:
        with torch.no_grad():
            shapes, others = (_called(model, rows, layers)[0] for rows in _two_sizes(inputs))
    except Exception:  # whatever a model does with rows it did not expect
        return {}
    return {name: _grown(shape, others.get(name, shape)) for name, shape in shapes.items()}


def _two_sizes(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs, and a batch of another size."""
    return inputs, inputs[:1] if len(inputs) > 1 else torch.cat([inputs, inputs])


def _grown(shape: torch.Size, other: torch.Size) -> int | None:
    sizes = enumerate(zip(shape, other, strict=False))
    return next((axis for axis, (one, two) in sizes if one != two), None)


def find_fan(model: nn.Module, inputs: Tensor, layers: Layers, axes: Axes) -> Fan | None:
    """Return the latest place to multiply the rows at, or None where passes must go one by one.

    The first random layer, or the block around it where a connection goes past it, and so on
    outwards. A place is right if, with random layers at rest, multiplied rows give the same outputs
    as plain ones, and every random layer is given them; that is tried, not guessed.
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
    model: nn.Module, inputs: Tensor, layers: Layers
) -> tuple[dict[str, torch.Size], Tensor]:
    """Run the model once; return what shape each of the layers was given first, and the outputs."""
    called: dict[str, torch.Size] = {}

    def note(_: nn.Module, given: tuple[Any, ...], name: str) -> None:
        called.setdefault(name, getattr(given[0] if given else None, "shape", torch.Size()))

    handles = [
        layer.register_forward_pre_hook(partial(note, name=name)) for name, layer in layers.items()
    ]
    try:
        return called, model(inputs)
    finally:
        for handle in handles:
            handle.remove()


def _outwards(name: str) -> Iterator[str]:
    """Yield a layer's name, then those of the blocks around it; not the model, which saves none."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _tried(
    model: nn.Module,
    name: str,
    inputs: Tensor,
    plain: Tensor,
    layers: Layers,
    shapes: dict[str, torch.Size],
) -> Fan | None:
    """Return the place if multiplying rows there twice over gives the plain outputs twice over."""
    try:
        arguments = _with_rows(model, model.get_submodule(name), inputs)
        with _fanning(model.get_submodule(name), 2, arguments) as given:
            called, outputs = _called(model, inputs, layers)
    except Exception:  # whatever a model does with rows it did not expect
        return None
    expected = torch.cat([plain, plain])
    same = outputs.shape == expected.shape and torch.allclose(
        outputs, expected, rtol=1e-3, atol=1e-3 * float(plain.abs().max()), equal_nan=True
    )
    if not same or called != shapes:
        return None
    elements, first = -(-given[0].numel() // len(plain)), given[0].data_ptr() == inputs.data_ptr()
    return Fan(name, elements, first, arguments)


def _with_rows(model: nn.Module, layer: nn.Module, inputs: Tensor) -> Arguments:
    """Return which arguments of a layer hold the rows: those that grow with them."""
    shapes, others = (_given(model, layer, rows) for rows in _two_sizes(inputs))
    return tuple(name for name, shape in shapes.items() if _grown(shape, others[name]) == 0)


def _given(model: nn.Module, layer: nn.Module, inputs: Tensor) -> dict[int | str, torch.Size]:
    """Run the model once; return the shapes of what a layer was given first."""
    shapes: list[dict[int | str, torch.Size]] = []

    def note(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        every = _by_name(given, named)
        shapes.append({key: one.shape for key, one in every.items() if isinstance(one, Tensor)})

    handle = layer.register_forward_pre_hook(note, with_kwargs=True)
    try:
        model(inputs)
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
    """Multiply the rows of the first batch that the layer is given; say which batch that was."""
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
    """Put the layers into training mode, and them alone, then give them their modes back."""
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
    """Hold torch back from its fast path, which calls no layer inside a transformer's."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
