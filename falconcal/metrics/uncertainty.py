"""Uncertainty: what a model says of itself, true classes known or not."""

import math
from numbers import Integral

import torch
from torch import Tensor

from falconcal.bins import bin_index, check_bins
from falconcal.errors import UserError
from falconcal.metrics.scored import scores_of, takes_arrays
from falconcal.predictions import Predictions, Scores


@takes_arrays
def predictive_entropy(data: Predictions | Scores) -> float:
    """Mean entropy of the distribution, in nats."""
    return float(scores_of(data).entropy.double().mean())


@takes_arrays
def mean_confidence(data: Predictions | Scores) -> float:
    """Mean probability of the most probable class."""
    return float(scores_of(data).confidence.double().mean())


@takes_arrays
def confidence_histogram(data: Predictions | Scores, bins: int = 20) -> Tensor:
    """Return the share of examples in each of the bins of ``falconcal.bins``: (bins,)."""
    check_bins(bins)
    counts = torch.bincount(bin_index(scores_of(data).confidence, bins), minlength=bins)
    return counts.double() / counts.sum()


@takes_arrays
def confidence_by_class(data: Predictions | Scores, classes: int) -> Tensor:
    """Return the mean confidence of each predicted class, NaN where none is: (C,).

    The paper's figure for outliers: all of it should be near 1 / C.
    """
    if not isinstance(classes, Integral) or classes < 2:
        raise UserError(f"expected the number of classes, at least 2, got {classes!r}.")
    scores = scores_of(data)
    counts = torch.bincount(scores.prediction, minlength=classes)
    if len(counts) > classes:
        raise UserError(f"expected classes below {classes}, got {int(scores.prediction.max())}.")
    sums = torch.bincount(scores.prediction, scores.confidence.double(), classes)
    return torch.where(counts > 0, sums / counts, math.nan)
