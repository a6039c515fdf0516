"""Metrics from batches: memory that does not grow, and merging of what others counted.

An accumulator holds sums alone, so the parts may come in any order, from any process or machine,
and give the number of the whole. What needs an order of all examples (equal-mass bins, AUROC, the
risk-coverage curve) cannot be summed; keep scores for those.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce

import torch
from torch import Tensor

from falconcal.bins import bin_index
from falconcal.errors import UserError, described
from falconcal.metrics.calibration import (
    BINS,
    ReliabilityCurve,
    classwise_from,
    classwise_statistics,
    residual_histogram,
    smooth_from,
)
from falconcal.metrics.scored import labelled_predictions
from falconcal.predictions import Data, Predictions, Scores


@dataclass(frozen=True, eq=False)
class Accumulator:
    """Sums over examples; ``of`` makes one from a batch, ``+`` puts two together."""

    bins: int
    totals: Tensor  # (5,): examples, hits, NLL, Brier, entropy
    reliability: Tensor  # (M, 3): counts, summed confidence, hits
    residuals: Tensor  # cells of smooth ECE
    classwise: Tensor  # (C, M, 3): counts, summed probability, hits
    by_class: Tensor  # (C, 2): predictions of each class, their summed confidence

    @classmethod
    def of(cls, predictions: Data, bins: int = BINS) -> "Accumulator":
        """Return the sums of one batch."""
        predictions = labelled_predictions(predictions, "an accumulator")
        scores, classes = predictions.scores(), predictions.classes
        index = bin_index(scores.confidence, bins)
        ones, hits = torch.ones(len(scores), dtype=torch.float64), scores.correct.double()
        return cls(
            bins=bins,
            totals=torch.stack([ones, hits, scores.nll, scores.brier, scores.entropy]).sum(1),
            reliability=_sums(index, bins, ones, scores.confidence, hits),
            residuals=residual_histogram(scores),
            classwise=classwise_statistics(predictions, bins),
            by_class=_sums(scores.prediction, classes, ones, scores.confidence),
        )

    @classmethod
    def over(cls, batches: Iterable[Data], bins: int = BINS) -> "Accumulator":
        """Return the sums over batches, holding one at a time."""
        if isinstance(batches, str | Predictions | Scores) or not isinstance(batches, Iterable):
            raise UserError(f"expected predictions batch by batch, got {described(batches)}.")
        parts = (cls.of(batch, bins) for batch in batches)
        first = next(parts, None)
        if first is None:
            raise UserError("expected at least one batch, got none: is the loader empty?")
        return reduce(cls.__add__, parts, first)

    def __add__(self, other: "Accumulator") -> "Accumulator":
        if not isinstance(other, Accumulator):
            raise UserError(f"expected another accumulator to add, got {described(other)}.")
        if (self.bins, self.by_class.shape) != (other.bins, other.by_class.shape):
            raise UserError(
                f"expected accumulators of the same bins and classes, got {self.bins} and "
                f"{other.bins} bins, {len(self.by_class)} and {len(other.by_class)} classes."
            )
        tensors = [field.name for field in fields(self) if field.name != "bins"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in tensors}
        return replace(self, **sums)

    def __len__(self) -> int:
        return int(self.totals[0])

    def curve(self) -> ReliabilityCurve:
        counts, confidence, hits = self.reliability.unbind(1)
        return ReliabilityCurve(counts.long(), confidence / counts, hits / counts)

    def confidence_by_class(self) -> Tensor:
        """Return the mean confidence of each predicted class, NaN where none is: (C,)."""
        counts, confidence = self.by_class.unbind(1)
        return confidence / counts

    def metrics(self) -> dict[str, float]:
        """Return every metric that sums can give, by its name in the table."""
        curve = self.curve()
        accuracy, nll, brier, entropy = (self.totals[1:] / self.totals[0]).tolist()
        confidence = float(self.reliability[:, 1].sum() / len(self))
        return {
            "accuracy": accuracy,
            "ece": float((curve.shares * curve.gaps.abs()).sum()),
            "nll": nll,
            "brier": brier,
            "entropy": entropy,
            "confidence": confidence,
            "mce": float(curve.gaps.abs().max()),
            "smooth_ece": smooth_from(self.residuals, len(self)),
            "signed_gap": confidence - accuracy,
            "classwise_ece": classwise_from(self.classwise),
        }


def _sums(index: Tensor, size: int, *columns: Tensor) -> Tensor:
    """Return sums of columns by index: (size, number of columns)."""
    return torch.stack([torch.bincount(index, column.double(), size) for column in columns], 1)
