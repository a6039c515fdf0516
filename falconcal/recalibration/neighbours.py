"""How far an example is from stored training examples, stage by stage.

As in density-aware calibration (Tomani, Waseda, Shen & Cremers, "Beyond In-Domain Scenarios: Robust
Density-Aware Calibration", ICML 2023): each view of a stage is scaled to length 1, and the distance
to the k-th nearest of the stored examples says how unusual the example is there. Beside it, where
asked for, what the neighbours' labels say: the fraction of the k that carry the predicted class,
and the log ratio of the distances to the predicted class and to any other.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.hashing import keyed_bits, text_key
from falconcal.core.module_state import flush_denormals, inference_mode_of, to_model_device
from falconcal.data import PREDICTION_BATCH_SIZE, Examples
from falconcal.errors import UserError
from falconcal.recalibration.buffers import size_buffers_as_stored
from falconcal.recalibration.stages import Outputs, ViewKind, observe, views

BLOCK = 32  # rows worked on at a time: always as many, so that a batch's size changes no bits
SMALLEST = 1e-6  # distance below which two examples count as one


@dataclass(frozen=True)
class Layout:
    """What the stored features are of: the stages, and each view's name and width."""

    stages: tuple[str, ...]
    views: tuple[str, ...]
    widths: tuple[int, ...]
    k: int
    labels: bool  # whether neighbours' labels count
    logits: bool  # whether the logits count
    kind: ViewKind = "grid"


class Neighbours(nn.Module):
    """Stored training examples: inputs and a model in, logits and features (N, F) out.

    The features are one distance per view, then with labels one agreement and one ratio per view,
    then with logits first less second, first less mean, and first. All but the logits' numbers rise
    as an example gets stranger. Buffers hold everything, so that a model file does too.
    """

    stored: Tensor  # (M, sum of widths)
    labels: Tensor  # (M,)
    centre: Tensor  # (F,) of the features on clean data
    spread: Tensor  # (F,)
    written: Tensor  # the layout as JSON in bytes

    def __init__(self) -> None:
        super().__init__()
        for name in ("stored", "centre", "spread"):
            self.register_buffer(name, torch.empty(0))
        for name in ("labels", "written"):
            self.register_buffer(name, torch.empty(0, dtype=torch.uint8))
        self._layout: Layout | None = None
        size_buffers_as_stored(self)

    @property
    def layout(self) -> Layout:
        if self._layout is None:  # loaded from a file
            self._layout = _read_layout(self.written)
        return self._layout

    @property
    def rising(self) -> int:
        """How many of the features rise as an example gets stranger; they come first."""
        return len(self.layout.views) * (3 if self.layout.labels else 1)

    def store(
        self, layout: Layout, seen: Mapping[str, Tensor], labels: Tensor, dtype: torch.dtype
    ) -> None:
        """Keep training examples: the views of (M, D) by name, and their labels (M,)."""
        text = json.dumps(asdict(layout)).encode()
        self.written = torch.tensor(list(text), dtype=torch.uint8, device=labels.device)
        self._layout = layout
        self.stored = torch.cat(self._narrowed(seen), 1).to(dtype)
        self.labels = labels

    def standardise(self, features: Tensor) -> None:
        """Take the mean and deviation of these features, (N, F), for zero and one."""
        self.centre = features.mean(0)
        self.spread = features.std(0).nan_to_num(1.0).clamp_min(1e-6)

    def features(self, seen: Mapping[str, Tensor], logits: Tensor) -> Tensor:
        """Return the features, not standardised: views (N, D) by name, (N, C) -> (N, F) float64."""
        columns = torch.cat([*self._narrowed(seen), logits.float()], 1)  # (N, widths + C)
        return in_blocks(self._block, columns)

    def _narrowed(self, seen: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the views as vectors of length 1, those that are too wide projected."""
        pairs = zip(self.layout.views, self.layout.widths, strict=True)
        return [narrowed(name, seen[name], width) for name, width in pairs]

    def _block(self, columns: Tensor) -> Tensor:
        """Return the features of one block of rows, (BLOCK, sum of widths + C) -> (BLOCK, F)."""
        layout = self.layout
        widths = [*layout.widths, columns.shape[1] - sum(layout.widths)]
        *seen, logits = torch.split(columns, widths, 1)
        kept = torch.split(self.stored.to(columns), list(layout.widths), 1)
        distances = [_distances(*pair) for pair in zip(seen, kept, strict=True)]  # (BLOCK, M) each
        k = min(layout.k, len(self.labels))
        features = [one.kthvalue(k, 1).values for one in distances]
        if layout.labels:
            same = self.labels[None] == logits.argmax(1)[:, None]  # (BLOCK, M)
            features += [disagreement(one, same, k) for one in distances]
            features += [log_ratio(one, same) for one in distances]
        if layout.logits:
            features += logit_numbers(logits)
        return torch.stack(features, 1).double()

    def features_of_pass(self, logits: Tensor, outputs: Outputs) -> Tensor:
        """Return the features, not standardised, of a pass: logits (N, C), stages -> (N, F)."""
        own = {stage: outputs[stage] for stage in self.layout.stages if stage in outputs}
        return self.features(views(own, self.layout.kind), logits)

    def standardised(self, features: Tensor) -> Tensor:
        """Return features, (N, F), with the mean and deviation of clean data at zero and one."""
        return (features - self.centre.to(features)) / self.spread.to(features)

    def stores_the_same_as(self, other: "Neighbours") -> bool:
        """Return whether another gives the same features before they are standardised."""
        pairs = ((self.stored, other.stored), (self.labels, other.labels))
        return self.layout == other.layout and all(
            mine.dtype == theirs.dtype
            and mine.device == theirs.device
            and torch.equal(mine, theirs)
            for mine, theirs in pairs
        )


def stored_neighbours(
    model: nn.Module,
    home: Examples,
    stages: Sequence[str],
    *,
    k: int,
    labels: bool,
    logits: bool,
    kind: ViewKind,
    widest: int,
    dtype: torch.dtype,
) -> Neighbours:
    """Return the examples of ``home`` as the model's stages see them, to measure distances to."""
    passes = [
        views(observed(model, inputs, stages)[1], kind)
        for inputs, _ in home.batches(PREDICTION_BATCH_SIZE)
    ]
    seen = {name: torch.cat([one[name] for one in passes]) for name in passes[0]}
    widths = tuple(min(view.shape[1], widest) for view in seen.values())
    neighbours = Neighbours()
    layout = Layout(tuple(stages), tuple(seen), widths, k, labels, logits, kind)
    first = next(iter(seen.values()))
    neighbours.store(layout, seen, home.labels.to(first.device), dtype)
    return neighbours


def stored_examples(model: nn.Module) -> int:
    """Return how many training examples a model holds features of."""
    parts = [part for part in model.modules() if isinstance(part, Neighbours)]
    return sum(len(part.labels) for part in parts)


def observed(
    model: nn.Module, inputs: Tensor, stages: Sequence[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return logits and stages of inputs in inference mode, without gradients."""
    with inference_mode_of(model), torch.no_grad(), flush_denormals():
        return observe(model, to_model_device(model, inputs), stages)


def _read_layout(written: Tensor) -> Layout:
    try:
        values: dict[str, Any] = json.loads(bytes(written.tolist()))
        lists = {name: tuple(values[name]) for name in ("stages", "views", "widths")}
        return Layout(**{**values, **lists})
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"the stored examples of the model cannot be read: {error}.") from None


def narrowed(name: str, view: Tensor, width: int) -> Tensor:
    """Return vectors of length 1 and at most this width: (N, D) -> (N, width)."""
    if view.shape[1] > width:
        view = in_blocks(lambda rows: rows @ projection(name, view.shape[1], width).to(rows), view)
    return nn.functional.normalize(view, dim=1)


@lru_cache(maxsize=64)
def projection(name: str, width: int, to: int) -> Tensor:
    """Return a random matrix of signs that nearly keeps distances: (width, to).

    Achlioptas, "Database-friendly random projections", 2003.
    """
    keys = torch.arange(width) + text_key(f"projection {name}")
    return (keyed_bits(keys, to) < 0).float() * 2 - 1


def _distances(rows: Tensor, stored: Tensor) -> Tensor:
    """Return Euclidean distances of vectors of length 1: (N, D), (M, D) -> (N, M)."""
    return (2 - 2 * rows @ stored.T).clamp_min_(0).sqrt_()


def disagreement(distances: Tensor, same: Tensor, k: int) -> Tensor:
    """Return the fraction of the k nearest that carry another class than the predicted: (N,)."""
    nearest = distances.topk(k, largest=False).indices  # (N, k)
    return 1 - same.gather(1, nearest).float().mean(1)


def log_ratio(distances: Tensor, same: Tensor) -> Tensor:
    """Return log(distance to the predicted class / distance to any other), up to 2 or -2: (N,)."""
    far = torch.full_like(distances, math.inf)
    own = torch.where(same, distances, far).amin(1).clamp_min(SMALLEST)
    other = torch.where(same, far, distances).amin(1).clamp_min(SMALLEST)
    return (own / other).nan_to_num(1.0).log().clamp(-2, 2)


def logit_numbers(logits: Tensor) -> list[Tensor]:
    """Return first less second, first less mean, and first: (N,) each."""
    first, second = logits.topk(2, 1).values.unbind(1)
    return [first - second, first - logits.mean(1), first]


def in_blocks(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return a function of rows, called with equally many at a time, the last block filled up."""
    blocks = [function(_filled(block))[: len(block)] for block in torch.split(rows, BLOCK)]
    return torch.cat(blocks) if blocks else function(_filled(rows))[:0]


def _filled(block: Tensor) -> Tensor:
    if len(block) == BLOCK:
        return block
    return torch.cat([block, block.new_zeros(BLOCK - len(block), *block.shape[1:])])
