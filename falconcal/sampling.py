"""Sampling predictors: a network with random layers answers by the average of many draws.

Probabilities are averaged, never logits. What comes before the first random layer is the same in
every draw and is computed once: there the batch of N rows becomes one of draws * N rows, the rows
of one draw after those of another, and goes on as one batch.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from falconcal.errors import UserError
from falconcal.losses import wide
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
ELEMENTS = 2**20  # that a batch may hold where its rows are multiplied: it should fit the cache


class Sampled(nn.Module):
    """A network with random layers: one draw a pass in training, the mean of many in inference.

    In training mode it is the network itself. In inference mode it returns the normalised
    log-probabilities of the mean over ``samples`` draws, from its own seed: the same batch gets the
    same answer, and the caller's random state is left as it was.

    What a random layer must do, and ``is_random`` tells which layers are: draw when its own
    ``training`` is true, and be its mean when it is not. While draws are taken the random layers
    alone are in training mode. One that shares its noise among rows, such as weights that are
    drawn, has an attribute ``draws``: the batch it is given then holds that many draws, the rows
    of one after those of another (``rows.unflatten(0, (draws, -1))``), each to have its own noise.
    Outside of sampling it is 0.
    """

    def __init__(self, model: nn.Module, samples: int, is_random: IsRandom, seed: int = 0) -> None:
        super().__init__()
        self.model, self.samples, self.is_random, self.seed = model, samples, is_random, seed
        self.training = model.training  # or every part would seem held in the other mode
        self.fans: dict[tuple[object, ...], Fan | None] = {}  # found once for each kind of batch

    def forward(self, inputs: Tensor) -> Tensor:  # (N, ...) -> (N, C)
        if self.training:
            logits: Tensor = self.model(inputs)
            return logits
        layers = {
            name: layer for name, layer in self.model.named_modules() if self.is_random(layer)
        }
        with _every_layer_called():
            fan = self._fan(inputs, layers)
            with seeded_random(self.seed):
                return self._fanned(inputs, layers, fan) if fan else self._passes(inputs, layers)

    def _fan(self, inputs: Tensor, layers: dict[str, nn.Module]) -> "Fan | None":
        # a single example can be broadcast where several cannot
        kind = (len(inputs) == 1, inputs.shape[1:], *layers)
        if kind not in self.fans:
            self.fans[kind] = find_fan(self.model, inputs, layers)
        return self.fans[kind]

    def _fanned(self, inputs: Tensor, layers: dict[str, nn.Module], fan: "Fan") -> Tensor:
        if inputs.is_floating_point() and not fan.first:
            examples = max(1, ELEMENTS // (self.samples * fan.elements))
            parts = (
                self._draws_at_once(part, layers, fan, self.samples)
                for part in torch.split(inputs, examples)
            )
            return torch.cat([mean_probabilities(part) for part in parts])
        # at the first layer nothing is saved by parting the examples, and weights would be drawn
        # for each part; an attack puts other rows in the place of an embedding's, all of them
        draws = max(1, ELEMENTS // (len(inputs) * fan.elements))
        sizes = [min(draws, self.samples - done) for done in range(0, self.samples, draws)]
        parts = (self._draws_at_once(inputs, layers, fan, size) for size in sizes)
        return mean_probabilities(torch.cat(list(parts)))

    def _draws_at_once(
        self, inputs: Tensor, layers: dict[str, nn.Module], fan: "Fan", draws: int
    ) -> Tensor:
        with _drawing(layers, draws), _fanning(fan.layer(self.model), draws):
            logits: Tensor = self.model(inputs)  # (draws * N, C)
        return logits.reshape(draws, -1, logits.shape[-1])  # (draws, N, C)

    def _passes(self, inputs: Tensor, layers: dict[str, nn.Module]) -> Tensor:
        with _drawing(layers, 1):
            return mean_probabilities(
                torch.stack([self.model(inputs) for _ in range(self.samples)])
            )


def mean_probabilities(logits: Tensor) -> Tensor:
    """Return the log of the mean of probabilities over draws or members: (S, N, C) -> (N, C)."""
    return wide(logits).log_softmax(2).logsumexp(0) - math.log(len(logits))


@dataclass(frozen=True)
class Fan:
    """The layer at whose entrance the rows of a batch are multiplied."""

    name: str
    elements: int  # an example has there
    first: bool  # it is given the inputs themselves

    def layer(self, model: nn.Module) -> nn.Module:
        return model.get_submodule(self.name)


def find_fan(model: nn.Module, inputs: Tensor, layers: dict[str, nn.Module]) -> Fan | None:
    """Return the latest place to multiply the rows at, or None where passes must go one by one.

    The first random layer, or the block around it where a connection goes past it, and so on
    outwards. A place is right if, with random layers at rest, multiplied rows give the same outputs
    as plain ones; that is tried, not guessed.
    """
    with torch.no_grad():
        called, plain = _called_in_order(model, inputs, layers)
        if not called:
            raise UserError(
                "expected a random layer that the model calls, found none: sampling needs noise "
                "from layers such as nn.Dropout, not from functions such as functional.dropout."
            )
        places = (_tried(model, name, inputs, plain) for name in _outwards(called[0]))
        return next((fan for fan in places if fan is not None), None)


def _called_in_order(
    model: nn.Module, inputs: Tensor, layers: dict[str, nn.Module]
) -> tuple[list[str], Tensor]:
    """Run the model once; return which of the layers it called, and its outputs."""
    called: list[str] = []
    handles = [
        layer.register_forward_pre_hook(lambda *_, name=name: called.append(name))
        for name, layer in layers.items()
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


def _tried(model: nn.Module, name: str, inputs: Tensor, plain: Tensor) -> Fan | None:
    """Return the place if multiplying rows there twice over gives the plain outputs twice over."""
    try:
        with _fanning(model.get_submodule(name), 2) as given:
            outputs: Tensor = model(inputs)
    except Exception:  # whatever a model does with rows it did not expect
        return None
    expected = torch.cat([plain, plain])
    same = outputs.shape == expected.shape and torch.allclose(
        outputs, expected, rtol=1e-3, atol=1e-3 * float(plain.abs().max()), equal_nan=True
    )
    if not same:
        return None
    return Fan(name, -(-given[0].numel() // len(plain)), given[0].data_ptr() == inputs.data_ptr())


@contextmanager
def _fanning(layer: nn.Module, draws: int) -> Iterator[list[Tensor]]:
    """Multiply the rows of the first batch that the layer is given; say which batch that was.

    Only its first argument: where others hold rows too, the place is not the right one.
    """
    batches: list[Tensor] = []

    def multiply(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if batches:
            return None
        batches.append(given[0].detach())
        return (torch.cat([given[0]] * draws), *given[1:])  # keeps the order in memory

    handle = layer.register_forward_pre_hook(multiply)
    try:
        yield batches
    finally:
        handle.remove()


@contextmanager
def _drawing(layers: dict[str, nn.Module], draws: int) -> Iterator[None]:
    """Let the random layers draw, and them alone, then give them their modes back."""
    modes = [(layer, layer.training) for layer in layers.values()]
    sharing = [layer for layer in layers.values() if hasattr(layer, "draws")]
    try:
        for layer, _ in modes:
            layer.training = True
        for layer in sharing:
            layer.draws = draws  # type: ignore[assignment]
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode
        for layer in sharing:
            layer.draws = 0  # type: ignore[assignment]


@contextmanager
def _every_layer_called() -> Iterator[None]:
    """Hold torch back from its fast path, which calls no layer inside a transformer's."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
