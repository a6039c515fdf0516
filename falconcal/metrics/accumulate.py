"""Metrics from batches, in memory that does not grow, and merged from several processes.

An accumulator holds only sums, so the parts may come in any order, from any process or machine,
and give the value of the whole. What needs an order of all examples (equal-mass bins, AUROC, the
risk-coverage curve) cannot be summed; keep scores for those.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce

import torch
from torch import Tensor

from falconcal.errors import UserError, described
from falconcal.metrics.binning import bin_index
from falconcal.metrics.calibration import (
    BINS,
    ReliabilityCurve,
    classwise_ece_from_counts,
    classwise_statistics,
    residual_histogram,
    smooth_ece_from_histogram,
)
from falconcal.metrics.metric_inputs import labelled_predictions
from falconcal.metrics.predictions import Data, Predictions, Scores


@dataclass(frozen=True, eq=False)
class Accumulator:
    """Sums over examples that metrics are made from; ``of`` takes a batch, ``+`` adds two.

    Its memory does not grow with the number of examples, and the order in which parts are added
    does not matter.

    Example:
        >>> from falconcal.metrics import Accumulator
        >>> first = Accumulator.of(([[0.9, 0.1]], [0]))
        >>> second = Accumulator.of(([[0.9, 0.1]], [1]))
        >>> both = first + second
        >>> len(both), round(both.metrics()["ece"], 6)
        (2, 0.4)
    """

    bins: int
    """How many bins the calibration errors have."""
    totals: Tensor
    """Examples, hits and summed NLL, Brier score and entropy: (5,)."""
    reliability: Tensor
    """Counts, summed confidence and hits of each bin: (M, 3)."""
    residuals: Tensor
    """Summed residuals on the grid of smooth ECE: (cells,)."""
    classwise: Tensor
    """Counts, summed probability and hits of each class's bins: (C, M, 3)."""
    by_class: Tensor
    """Predictions of each class and their summed confidence: (C, 2)."""

    @classmethod
    def of(cls, predictions: Data, bins: int = BINS) -> "Accumulator":
        """Return the sums of one batch.

        Args:
            predictions: Predictions, or a pair of probabilities (N, C) and labels (N,).
            bins: How many bins the calibration errors have.

        Returns:
            The sums.

        Raises:
            UserError: If an example has no true class, or scores are given: they lack
                probabilities.
        """
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
        """Return the sums over batches, of which one is held at a time.

        Args:
            batches: Predictions of each batch, or pairs of probabilities and labels.
            bins: How many bins the calibration errors have.

        Returns:
            The sums of all of them.

        Raises:
            UserError: If there is no batch, or one is not as ``of`` takes it.
        """
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
        """Return the reliability curve."""
        counts, confidence, hits = self.reliability.unbind(1)
        return ReliabilityCurve(counts.long(), confidence / counts, hits / counts)

    def confidence_by_class(self) -> Tensor:
        """Return the mean confidence of each predicted class, NaN where there is none: (C,)."""
        counts, confidence = self.by_class.unbind(1)
        return confidence / counts

    def metrics(self) -> dict[str, float]:
        """Return every metric that sums can give, by its name in ``METRICS``."""
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
            "smooth_ece": smooth_ece_from_histogram(self.residuals, len(self)),
            "signed_gap": confidence - accuracy,
            "classwise_ece": classwise_ece_from_counts(self.classwise),
        }


def _sums(index: Tensor, size: int, *columns: Tensor) -> Tensor:
    """Return sums of columns by index: (size, number of columns)."""
    return torch.stack([torch.bincount(index, column.double(), size) for column in columns], 1)
