"""Sampling predictors: a network with random layers predicts the mean of many draws.

Probabilities are averaged, never logits. What comes before the first random layer is the same in
every draw and is computed once: at that layer the batch of N rows is repeated to draws * N rows,
all rows of one draw before those of the next, and the rest of the network runs on that batch.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.hashing import content_keys
from falconcal.core.model_inputs import (
    Inputs,
    call_model,
    packed,
)
from falconcal.core.module_state import at_least_float32
from falconcal.core.randomness import combined_seed, seeded_random
from falconcal.models.branch_point import (
    Axes,
    BranchPoint,
    Layers,
    find_branch_point,
    repeated_rows,
    row_axes,
)
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
        self.branch_points: dict[tuple[object, ...], BranchPoint | None] = {}
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
            branch, axes = self._found(inputs, layers)
            drawing = Drawing(layers, axes, self.seed, _row_keys(inputs))
            if branch is None:
                return self._passes(inputs, drawing)
            return self._branched(inputs, drawing, branch)

    def _found(self, inputs: Inputs, layers: Layers) -> tuple[BranchPoint | None, Axes]:
        # a single example can be broadcast where several cannot
        kind = (len(inputs) == 1, inputs.shape[1:], *layers)
        if kind not in self.axes:
            self.axes[kind] = row_axes(self.model, inputs, layers)
        if kind not in self.branch_points:
            self.branch_points[kind] = find_branch_point(
                self.model, inputs, layers, self.axes[kind]
            )
        return self.branch_points[kind], self.axes[kind]

    def _branched(self, inputs: Inputs, drawing: "Drawing", branch: BranchPoint) -> Tensor:
        if inputs.is_floating_point() and not branch.first:
            examples = max(1, ELEMENTS // (self.samples * branch.elements))
            rows = (slice(start, start + examples) for start in range(0, len(inputs), examples))
            parts = (
                self._draws_at_once(inputs[part], drawing.part(part), branch, range(self.samples))
                for part in rows
            )
            return torch.cat([mean_probabilities(part) for part in parts])
        # at the first layer splitting the examples saves nothing, and weights would be drawn again
        # for each part; an attack replaces the rows of an embedding, and replaces all of them
        size = max(1, ELEMENTS // (len(inputs) * branch.elements))
        draws = (
            range(start, min(start + size, self.samples)) for start in range(0, self.samples, size)
        )
        parts = (self._draws_at_once(inputs, drawing, branch, some) for some in draws)
        return mean_probabilities(torch.cat(list(parts)))

    def _draws_at_once(
        self, inputs: Inputs, drawing: "Drawing", branch: BranchPoint, draws: range
    ) -> Tensor:
        with (
            drawing.of(draws),
            repeated_rows(branch.layer(self.model), len(draws), branch.arguments),
        ):
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


def mean_probabilities(logits: Tensor) -> Tensor:
    """Return the log of the mean of probabilities over draws or members: (S, N, C) -> (N, C)."""
    return at_least_float32(logits).log_softmax(2).logsumexp(0) - math.log(len(logits))


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
