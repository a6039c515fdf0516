"""Uncertainty: confidence and entropy, which need no true classes."""

import math
from numbers import Integral

import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.metrics.binning import bin_index, check_bins
from falconcal.metrics.metric_inputs import distributed, scores_of, takes_arrays
from falconcal.metrics.predictions import Predictions, Scores


@takes_arrays
def predictive_entropy(data: Predictions | Scores) -> float:
    """Mean entropy of the predicted distribution, in nats.

    The mean over examples of -sum_k p_k log p_k; probability 0 adds nothing.

    Args:
        data: Predictions, scores, or probabilities (N, C); labels are not needed.

    Returns:
        The mean, from 0 (always certain) to the log of the number of classes.

    Raises:
        UserError: If there are no examples.

    Example:
        An even distribution over two classes has entropy log 2 = 0.6931.

        >>> from falconcal.metrics import predictive_entropy
        >>> round(predictive_entropy([[0.5, 0.5], [1.0, 0.0]]), 4)
        0.3466
    """
    return float(distributed(scores_of(data), "entropy").entropy.double().mean())


@takes_arrays
def mean_confidence(data: Predictions | Scores) -> float:
    """Mean probability of the most probable class.

    Args:
        data: Predictions, scores, or probabilities (N, C); labels are not needed.

    Returns:
        The mean, from 1 over the number of classes to 1.

    Raises:
        UserError: If there are no examples.

    Example:
        >>> from falconcal.metrics import mean_confidence
        >>> round(mean_confidence([[0.9, 0.1], [0.4, 0.6]]), 6)
        0.75
    """
    return float(scores_of(data).confidence.double().mean())


@takes_arrays
def confidence_histogram(data: Predictions | Scores, bins: int = 20) -> Tensor:
    """Share of examples in each bin of confidence.

    Args:
        data: Predictions, scores, or probabilities (N, C); labels are not needed.
        bins: How many bins of equal width; at least 1.

    Returns:
        Shares that sum to 1, (bins,).

    Raises:
        UserError: If there are no examples, or ``bins`` is below 1.

    Example:
        >>> from falconcal.metrics import confidence_histogram
        >>> confidence_histogram([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [1.0, 0.0]], bins=4).tolist()
        [0.0, 0.0, 0.5, 0.5]
    """
    check_bins(bins)
    counts = torch.bincount(bin_index(scores_of(data).confidence, bins), minlength=bins)
    return counts.double() / counts.sum()


@takes_arrays
def confidence_by_class(data: Predictions | Scores, classes: int) -> Tensor:
    """Mean confidence of the examples that are predicted to be of each class.

    The paper's figure for outliers: all of it should be near 1 over the number of classes.

    Args:
        data: Predictions, scores, or probabilities (N, C); labels are not needed.
        classes: The number of classes, at least 2.

    Returns:
        One mean per class, NaN where no example is predicted to be of it: (C,).

    Raises:
        UserError: If there are no examples, ``classes`` is below 2, or a prediction is not below
            it.

    Example:
        >>> from falconcal.metrics import confidence_by_class
        >>> confidence_by_class([[0.9, 0.1], [0.7, 0.3]], classes=2).tolist()
        [0.8, nan]
    """
    if not isinstance(classes, Integral) or classes < 2:
        raise UserError(f"expected the number of classes, at least 2, got {classes!r}.")
    scores = scores_of(data)
    counts = torch.bincount(scores.prediction, minlength=classes)
    if len(counts) > classes:
        raise UserError(f"expected classes below {classes}, got {int(scores.prediction.max())}.")
    sums = torch.bincount(scores.prediction, scores.confidence.double(), classes)
    return torch.where(counts > 0, sums / counts, math.nan)
