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
from falconcal.core.layout import to_model_device
from falconcal.core.model_inputs import Inputs
from falconcal.core.module_state import flush_denormals, inference_mode_of
from falconcal.data import PREDICTION_BATCH_SIZE, Examples
from falconcal.errors import UserError
from falconcal.recalibration.buffers import size_buffers_as_stored
from falconcal.recalibration.stages import Outputs, ViewKind, observe, views

# Rows worked on at a time, and what their number is filled up to a multiple of. A product of
# matrices can round a row differently beside other numbers of rows, or where the row begins at
# another place in a cache line. Of rows that begin at a line MKL gives the same float32 bits for
# all multiples of 16 (a test holds it to that; on some CPUs 8 is enough): so blocks can be large,
# which is fast, and a single row stays cheap. Elsewhere all blocks have one size.
MKL_BLOCK, MKL_MULTIPLE = 256, 16
OTHER_BLOCK = 32
CACHE_LINE = 64  # bytes
SMALLEST = 1e-6  # distance below which two examples count as one


@dataclass(frozen=True)
class StoredLayout:
    """What the stored features are of: the stages, and each view's name and width."""

    stages: tuple[str, ...]
    views: tuple[str, ...]
    widths: tuple[int, ...]
    k: int
    labels: bool  # whether neighbours' labels count
    logits: bool  # whether the logits count
    kind: ViewKind = "grid"
    squared: bool = False  # whether distances are squared


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
        self._layout: StoredLayout | None = None
        size_buffers_as_stored(self)

    @property
    def layout(self) -> StoredLayout:
        if self._layout is None:  # loaded from a file
            self._layout = _read_layout(self.written)
        return self._layout

    @property
    def rising(self) -> int:
        """How many of the features rise as an example gets stranger; they come first."""
        return len(self.layout.views) * (3 if self.layout.labels else 1)

    def store(
        self, layout: StoredLayout, seen: Mapping[str, Tensor], labels: Tensor, dtype: torch.dtype
    ) -> None:
        """Keep training examples: the views of (M, D) by name, and their labels (M,)."""
        for name in layout.views:
            check_finite(f"the stage {name!r} of the stored examples", seen[name])
        text = json.dumps(asdict(layout)).encode()
        self.written = torch.tensor(list(text), dtype=torch.uint8, device=labels.device)
        self._layout = layout
        self.stored = torch.cat(self._narrowed(seen), 1).to(dtype)
        self.labels = labels

    def standardise(self, features: Tensor) -> None:
        """Take the mean and deviation of these features, (N, F), for zero and one."""
        check_finite("what the network gives out for validation examples", features)
        self.centre = features.mean(0)
        self.spread = features.std(0).nan_to_num(1.0).clamp_min(1e-6)

    def features(self, seen: Mapping[str, Tensor], logits: Tensor) -> Tensor:
        """Return the features, not standardised: views (N, D) by name, (N, C) -> (N, F) float64."""
        parts = [*self._narrowed(seen), logits.float()]
        columns = torch.cat([aligned(part) for part in parts], 1)  # (N, widths, all filled up)
        sizes = [part.shape[1] for part in parts]
        kept = torch.split(self.stored.to(columns), list(self.layout.widths), 1)  # (M, width) each
        return in_blocks(lambda rows: self._block(_parts(rows, sizes), kept), columns)

    def _narrowed(self, seen: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the views as vectors of length 1, those that are too wide projected."""
        pairs = zip(self.layout.views, self.layout.widths, strict=True)
        return [narrowed(name, seen[name], width) for name, width in pairs]

    def _block(self, parts: Sequence[Tensor], kept: Sequence[Tensor]) -> Tensor:
        """Return the features of one block of rows: views (B, width) and logits -> (B, F)."""
        layout = self.layout
        *seen, logits = parts
        same = self.labels[None] == logits.argmax(1)[:, None] if layout.labels else None  # (B, M)
        k = min(layout.k, len(self.labels))
        views = [view_numbers(products(a, b), k, same) for a, b in zip(seen, kept, strict=True)]
        features = [number for kind in zip(*views, strict=True) for number in kind]
        if layout.squared:
            features[: len(seen)] = [one.square() for one in features[: len(seen)]]
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
    squared: bool = False,
) -> Neighbours:
    """Return the examples of ``home`` as the model's stages see them, to measure distances to."""
    passes = [
        views(observed(model, inputs, stages)[1], kind)
        for inputs, _ in home.batches(PREDICTION_BATCH_SIZE)
    ]
    seen = {name: torch.cat([one[name] for one in passes]) for name in passes[0]}
    widths = tuple(min(view.shape[1], widest) for view in seen.values())
    neighbours = Neighbours()
    layout = StoredLayout(tuple(stages), tuple(seen), widths, k, labels, logits, kind, squared)
    first = next(iter(seen.values()))
    neighbours.store(layout, seen, home.labels.to(first.device), dtype)
    return neighbours


def stored_examples(model: nn.Module) -> int:
    """Return how many training examples a model holds features of."""
    parts = [part for part in model.modules() if isinstance(part, Neighbours)]
    return sum(len(part.labels) for part in parts)


def observed(
    model: nn.Module, inputs: Inputs, stages: Sequence[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return logits and stages of inputs in inference mode, without gradients."""
    with inference_mode_of(model), torch.no_grad(), flush_denormals():
        return observe(model, to_model_device(model, inputs), stages)


def check_finite(what: str, values: Tensor) -> None:
    """Refuse features of examples, (N, ...), among which is NaN or infinity."""
    bad = int((~values.isfinite()).flatten(1).any(1).sum())
    if bad:
        raise UserError(
            f"expected finite numbers, {what} has NaN or infinity for {bad} of {len(values)} "
            "examples: leave these examples out, or look at other stages."
        )


def _read_layout(written: Tensor) -> StoredLayout:
    try:
        values: dict[str, Any] = json.loads(bytes(written.tolist()))
        lists = {name: tuple(values[name]) for name in ("stages", "views", "widths")}
        return StoredLayout(**{**values, **lists})
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"the stored examples of the model cannot be read: {error}.") from None


def narrowed(name: str, view: Tensor, width: int) -> Tensor:
    """Return vectors of length 1 and at most this width: (N, D) -> (N, width)."""
    if view.shape[1] > width:
        signs = projection(name, view.shape[1], width).to(view)
        view = in_blocks(lambda rows: products(rows, signs.T), view)
    return nn.functional.normalize(view, dim=1)


@lru_cache(maxsize=64)
def projection(name: str, width: int, to: int) -> Tensor:
    """Return a random matrix of signs that nearly keeps distances: (width, to).

    Achlioptas, "Database-friendly random projections", 2003.
    """
    keys = torch.arange(width) + text_key(f"projection {name}")
    return (keyed_bits(keys, to) < 0).float() * 2 - 1


def products(rows: Tensor, stored: Tensor) -> Tensor:
    """Return all inner products: (N, D), (M, D) -> (N, M)."""
    if len(stored) == 1:  # a matrix times a vector rounds a row by its place among the others
        return (rows * stored).sum(1, keepdim=True)
    return rows @ stored.T


def view_numbers(similarities: Tensor, k: int, same: Tensor | None) -> list[Tensor]:
    """Return the distance to the k-th nearest and, with labels, what the neighbours' labels say.

    Similarities and ``same`` are (N, M), the numbers (N,) each: the distance, the fraction of the k
    nearest that carry another class than the predicted, and the log ratio.
    """
    nearest = similarities.topk(k)  # several times as fast as kthvalue, and faster than unsorted
    numbers = [distance(nearest.values[:, -1])]
    if same is not None:
        numbers.append(1 - same.gather(1, nearest.indices).float().mean(1))
        numbers.append(log_ratio(similarities, same))
    return numbers


def distance(similarity: Tensor) -> Tensor:
    """Return Euclidean distances of vectors of length 1 from their inner products."""
    return (2 - 2 * similarity).clamp_min_(0).sqrt_()


def log_ratio(similarities: Tensor, same: Tensor) -> Tensor:
    """Return log(distance to the predicted class / distance to any other), up to 2 or -2: (N,)."""
    own, other = (
        distance(similarities.masked_fill(left_out, -math.inf).amax(1)).clamp_min(SMALLEST)
        for left_out in (~same, same)
    )
    return (own / other).nan_to_num(1.0).log().clamp(-2, 2)


def logit_numbers(logits: Tensor) -> list[Tensor]:
    """Return first less second, first less mean, and first: (N,) each."""
    first, second = logits.topk(2, 1).values.unbind(1)
    return [first - second, first - logits.mean(1), first]


def in_blocks(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return a function of rows, called with numbers of rows that all give the same bits."""
    size, multiple = _block_size(rows)
    width, filled = rows.shape[1], aligned(rows)
    blocks = [
        function(_filled(block, multiple)[:, :width])[: len(block)]
        for block in torch.split(filled, size)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


def _block_size(rows: Tensor) -> tuple[int, int]:
    """Return how many rows make a block at most, and what a smaller one is filled up to."""
    single = rows.device.type == "cpu" and rows.dtype == torch.float32
    if single and torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return MKL_BLOCK, MKL_MULTIPLE
    return OTHER_BLOCK, OTHER_BLOCK


def _filled(block: Tensor, multiple: int) -> Tensor:
    missing = multiple if len(block) == 0 else -len(block) % multiple
    if missing == 0:
        return block
    return torch.cat([block, block.new_zeros(missing, block.shape[1])])


def aligned(rows: Tensor) -> Tensor:
    """Return rows (N, D) that all begin at a cache line: with zeros after them, (N, D or more)."""
    missing = -rows.shape[1] % (CACHE_LINE // rows.element_size())
    if missing == 0 and rows.is_contiguous() and rows.data_ptr() % CACHE_LINE == 0:
        return rows
    return torch.cat([rows, rows.new_zeros(len(rows), missing)], 1)


def _parts(columns: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Return the tensors of these widths that were aligned and then put side by side."""
    line = CACHE_LINE // columns.element_size()
    places = torch.split(columns, [size + -size % line for size in sizes], 1)
    return [place[:, :size] for place, size in zip(places, sizes, strict=True)]
