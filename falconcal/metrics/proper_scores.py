"""Proper scores and their parts.

Murphy's decomposition of the Brier score (J. Appl. Meteorol. 1973), class by class in bins of
probability, with the two terms that bins leave over (Stephenson, Coelho & Jolliffe, Weather and
Forecasting 2008) as one rest, so that the parts add up to the score itself.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from falconcal.metrics.binning import bin_index
from falconcal.metrics.calibration import BINS
from falconcal.metrics.metric_inputs import (
    distributed,
    labelled,
    labelled_answers,
    labelled_predictions,
    takes_arrays,
)
from falconcal.metrics.predictions import Predictions, Scores


@takes_arrays
def accuracy(data: Predictions | Scores) -> float:
    """Share of examples whose most probable class is the true one.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).

    Returns:
        The share, from 0 to 1 (best).

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        >>> from falconcal import accuracy
        >>> accuracy([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
        0.6666666666666666
    """
    return float(labelled_answers(data, "accuracy").correct.double().mean())


@takes_arrays
def negative_log_likelihood(data: Predictions | Scores) -> float:
    """Mean of -log p(true class), in nats.

    A true class given probability 0 counts 708.4, the log of the smallest normal 64-bit number, so
    that means stay finite.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).

    Returns:
        The mean, from 0 (best) to 708.4.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        -(log 0.8 + log 0.4) / 2 = (0.2231 + 0.9163) / 2

        >>> from falconcal import negative_log_likelihood
        >>> round(negative_log_likelihood([[0.8, 0.2], [0.6, 0.4]], [0, 1]), 4)
        0.5697
    """
    return float(distributed(labelled(data, "nll"), "nll").nll.double().mean())


@takes_arrays
def brier_score(data: Predictions | Scores) -> float:
    """Mean squared distance between the distribution and the one-hot truth.

    With y the one-hot truth, the mean over examples of sum_k (p_k - y_k)^2.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).

    Returns:
        The mean, from 0 (best) to 2.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        (0.2 ** 2 + 0.2 ** 2 + 0.6 ** 2 + 0.6 ** 2) / 2 = 0.4

        >>> from falconcal import brier_score
        >>> round(brier_score([[0.8, 0.2], [0.6, 0.4]], [0, 1]), 6)
        0.4
    """
    return float(distributed(labelled(data, "brier"), "brier").brier.double().mean())


@dataclass(frozen=True)
class BrierParts:
    """The parts of a Brier score: reliability - resolution + uncertainty + within_bins.

    Example:
        >>> from falconcal.metrics import BrierParts
        >>> BrierParts(reliability=0.25, resolution=0.5, uncertainty=0.5, within_bins=0.0).score
        0.25
    """

    reliability: float
    """Squared distance of probabilities from frequencies; 0 is calibrated."""
    resolution: float
    """Squared distance of the bins' frequencies from the base rate; higher is better."""
    uncertainty: float
    """Variance of the labels, whatever the predictions."""
    within_bins: float
    """What the bins do not see."""

    @property
    def score(self) -> float:
        """The Brier score that the parts add up to."""
        return self.reliability - self.resolution + self.uncertainty + self.within_bins


@takes_arrays
def brier_decomposition(data: Predictions | Scores, bins: int = BINS) -> BrierParts:
    """The Brier score as reliability less resolution plus uncertainty, summed over classes.

    Murphy's parts, each class against the rest in bins of its probability; what bins do not see
    stands as ``within_bins``, so that the parts add up to the score.

    Args:
        data: Predictions, or probabilities (N, C) followed by labels (N,).
        bins: How many bins of equal width; at least 1.

    Returns:
        The four parts.

    Raises:
        UserError: If there are no examples, one has no true class (a label of -1), or only scores
            are given.

    Example:
        Both classes have frequency 1/2: uncertainty 2 * 0.25. Bins of 0.8 and 0.2 miss their
        frequencies by 0.2 each.

        >>> from falconcal.metrics import brier_decomposition
        >>> parts = brier_decomposition([[0.8, 0.2], [0.2, 0.8]], [0, 1])
        >>> [round(value, 6) for value in (parts.reliability, parts.resolution, parts.uncertainty)]
        [0.08, 0.5, 0.5]
        >>> round(parts.score, 6)
        0.08
    """
    predictions = labelled_predictions(data, "the Brier decomposition")
    probs = predictions.probs.double()  # (N, C)
    truth = torch.nn.functional.one_hot(predictions.labels, probs.shape[1]).double()  # (N, C)
    parts = [_class_parts(probs[:, k], truth[:, k], bins) for k in range(probs.shape[1])]
    reliability, resolution, uncertainty = torch.stack(parts).sum(0).tolist()
    score = float((probs - truth).square().sum(1).mean())
    rest = score - (reliability - resolution + uncertainty)
    return BrierParts(reliability, resolution, uncertainty, rest)


def _class_parts(probability: Tensor, truth: Tensor, bins: int) -> Tensor:
    """Return reliability, resolution and uncertainty of one class against the rest: (3,)."""
    index = bin_index(probability, bins)  # (N,)
    counts = torch.bincount(index, minlength=bins)  # (M,)
    share, filled = counts.double() / len(truth), counts.clamp_min(1)
    mean = torch.bincount(index, probability, bins) / filled
    frequency = torch.bincount(index, truth, bins) / filled
    base = truth.mean()
    reliability = (share * (mean - frequency).square()).sum()
    resolution = (share * (frequency - base).square()).sum()
    return torch.stack([reliability, resolution, base * (1 - base)])
