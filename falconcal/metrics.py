"""Metrics: pure functions of scores, and the table of them.

Adding one: write a function of ``Scores`` that returns a number, and add a line to ``METRICS``.
Calibration follows the paper's equation 1 with the bins of ``falconcal.bins``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from falconcal.bins import bin_index
from falconcal.errors import UserError
from falconcal.predictions import Predictions, Scores

BINS = 10


def accuracy(data: Predictions | Scores) -> float:
    """Share of examples whose most probable class is the true one."""
    return float(_labelled(data, "accuracy").correct.double().mean())


def expected_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """ECE: mean over bins, weighted by their examples, of |accuracy - confidence|."""
    curve = reliability_curve(data, bins)
    gaps = (curve.accuracy - curve.confidence).abs()
    return float((curve.counts * gaps.nan_to_num(0.0)).sum() / curve.counts.sum())


def negative_log_likelihood(data: Predictions | Scores) -> float:
    """Mean of -log p(true class), in nats; a true class given probability 0 counts 708.4."""
    return float(_labelled(data, "nll").nll.mean())


def brier_score(data: Predictions | Scores) -> float:
    """Mean squared distance between the distribution and the one-hot truth, from 0 to 2."""
    return float(_labelled(data, "brier").brier.mean())


def predictive_entropy(data: Predictions | Scores) -> float:
    """Mean entropy of the distribution, in nats."""
    return float(_scores(data).entropy.mean())


def mean_confidence(data: Predictions | Scores) -> float:
    """Mean probability of the most probable class."""
    return float(_scores(data).confidence.mean())


METRICS: dict[str, Callable[[Scores], float]] = {
    "accuracy": accuracy,
    "ece": expected_calibration_error,
    "nll": negative_log_likelihood,
    "brier": brier_score,
    "entropy": predictive_entropy,
    "confidence": mean_confidence,
}


def micro_ece(levels: Sequence[Predictions | Scores], bins: int = BINS) -> float:
    """The paper's figure for a shift: one ECE over all levels pooled, the clean one included."""
    return expected_calibration_error(
        Scores.concatenate([_scores(level) for level in levels]), bins
    )


def macro_ece(levels: Sequence[Predictions | Scores], bins: int = BINS) -> float:
    """Mean of the per-level ECEs: over- and underconfidence at different levels cannot cancel."""
    if not levels:
        raise UserError("expected the scores of at least one level, got none.")
    return sum(expected_calibration_error(level, bins) for level in levels) / len(levels)


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Counts, mean confidence and accuracy of each bin; the two means of an empty bin are NaN."""

    counts: Tensor  # (M,)
    confidence: Tensor  # (M,)
    accuracy: Tensor  # (M,)


def reliability_curve(data: Predictions | Scores, bins: int = BINS) -> ReliabilityCurve:
    """Return what a reliability diagram shows."""
    scores = _labelled(data, "calibration error")
    index = bin_index(scores.confidence, bins)  # (N,)
    counts = torch.bincount(index, minlength=bins)  # (M,)
    confidence = torch.bincount(index, scores.confidence.double(), bins) / counts
    hits = torch.bincount(index, scores.correct.double(), bins) / counts
    return ReliabilityCurve(counts, confidence, hits)


def _scores(data: Predictions | Scores) -> Scores:
    scores = data.scores() if isinstance(data, Predictions) else data
    if len(scores) == 0:
        raise UserError("expected at least one example, got none.")
    return scores


def _labelled(data: Predictions | Scores, metric: str) -> Scores:
    scores = _scores(data)
    if (scores.label < 0).any():
        raise UserError(
            f"{metric} needs a true class for every example, got labels of -1: "
            "only confidence and entropy are defined for them."
        )
    return scores
