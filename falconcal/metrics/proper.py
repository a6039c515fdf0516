"""Proper scores and their parts.

Murphy's decomposition of the Brier score (J. Appl. Meteorol. 1973), class by class in bins of
probability, with the two terms that bins leave over (Stephenson, Coelho & Jolliffe, Weather and
Forecasting 2008) as one rest, so that the parts add up to the score itself.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from falconcal.bins import bin_index
from falconcal.metrics.calibration import BINS
from falconcal.metrics.scored import labelled, labelled_answers, labelled_predictions, takes_arrays
from falconcal.predictions import Predictions, Scores


@takes_arrays
def accuracy(data: Predictions | Scores) -> float:
    """Share of examples whose most probable class is the true one."""
    return float(labelled_answers(data, "accuracy").correct.double().mean())


@takes_arrays
def negative_log_likelihood(data: Predictions | Scores) -> float:
    """Mean of -log p(true class), in nats; a true class given probability 0 counts 708.4."""
    return float(labelled(data, "nll").nll.double().mean())


@takes_arrays
def brier_score(data: Predictions | Scores) -> float:
    """Mean squared distance between the distribution and the one-hot truth, from 0 to 2."""
    return float(labelled(data, "brier").brier.double().mean())


@dataclass(frozen=True)
class BrierParts:
    """``reliability - resolution + uncertainty + within_bins`` is the Brier score."""

    reliability: float  # distance of probabilities from frequencies: 0 is calibrated
    resolution: float  # how far the bins' frequencies are from the base rate: more is better
    uncertainty: float  # of the labels alone
    within_bins: float  # what the bins do not see

    @property
    def score(self) -> float:
        return self.reliability - self.resolution + self.uncertainty + self.within_bins


@takes_arrays
def brier_decomposition(data: Predictions | Scores, bins: int = BINS) -> BrierParts:
    """Take the Brier score apart, summed over classes."""
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
