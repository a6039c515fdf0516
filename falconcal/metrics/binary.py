"""Figures of tasks with two classes: the second one, number 1, is the positive class."""

from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

import numpy
import torch
from torch import Tensor

from falconcal.core.array_conversion import as_tensor
from falconcal.errors import UserError
from falconcal.metrics.binning import bin_index
from falconcal.metrics.metric_inputs import Settings, TakesArrays, Value, takes_arrays
from falconcal.metrics.predictions import PredictionRecord, Predictions

THRESHOLDS = tuple(round(0.1 * step, 1) for step in range(1, 10))


def _takes_positive(metric: TakesArrays[Settings, Value]) -> TakesArrays[Settings, Value]:
    """Make a metric take the probability of the positive class alone too, (N,)."""

    @wraps(metric)
    def taking(data: Any, *given: Any, **settings: Any) -> Any:
        return metric(_of_both_classes(data), *given, **settings)

    return cast("TakesArrays[Settings, Value]", taking)


def _of_both_classes(data: Any) -> Any:
    if isinstance(data, PredictionRecord):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return _of_both_classes(data[0]), data[1]
    positive = as_tensor(data, "probabilities")
    return torch.stack([1 - positive, positive], 1) if positive.ndim == 1 else data


@_takes_positive
@takes_arrays
def roc_auc(data: PredictionRecord) -> float:
    """Return the area under the ROC curve of the positive class.

    Args:
        data: Predictions of two classes, or probabilities of them, (N, 2), or of the positive one,
            (N,), followed by the labels.

    Returns:
        How often a positive example has a higher probability than a negative one; ties count half.

    Raises:
        UserError: There are not two classes, or examples of one alone.

    Example:
        Of the four pairs of a positive and a negative example, three are in order.

        >>> import torch
        >>> from falconcal import Predictions
        >>> from falconcal.metrics import roc_auc
        >>> positive = torch.tensor([0.9, 0.4, 0.6, 0.2])
        >>> probs = torch.stack([1 - positive, positive], 1)
        >>> roc_auc(Predictions(probs.log(), torch.tensor([1, 1, 0, 0])))
        0.75
    """
    from sklearn.metrics import roc_auc_score  # slow to import

    positive, truth = _positive_class(data)
    return float(roc_auc_score(truth.numpy(), positive.numpy()))


@_takes_positive
@takes_arrays
def average_precision(data: PredictionRecord) -> float:
    """Return the average precision of the positive class, its area under precision and recall.

    Args:
        data: Predictions of two classes, or probabilities of them, (N, 2), or of the positive one,
            (N,), followed by the labels.

    Returns:
        A number from the share of positive examples, which chance has, to 1.

    Raises:
        UserError: There are not two classes, or examples of one alone.

    Example:
        The positives are first and third of four: (1/1 + 2/3) / 2.

        >>> import torch
        >>> from falconcal import Predictions
        >>> from falconcal.metrics import average_precision
        >>> positive = torch.tensor([0.9, 0.4, 0.6, 0.2])
        >>> probs = torch.stack([1 - positive, positive], 1)
        >>> predictions = Predictions(probs.log(), torch.tensor([1, 1, 0, 0]))
        >>> round(average_precision(predictions), 4)
        0.8333
    """
    from sklearn.metrics import average_precision_score  # slow to import

    positive, truth = _positive_class(data)
    return float(average_precision_score(truth.numpy(), positive.numpy()))


@dataclass(frozen=True)
class PositiveReliability:
    """How often examples are positive where the model says so with some probability.

    Args:
        low: The lower end of each bin of the positive class's probability.
        high: The upper end.
        probability: The mean probability in it; NaN where it is empty.
        frequency: The share of positive examples in it; NaN where it is empty.
        count: The examples in it.

    Example:
        >>> from falconcal.metrics import positive_reliability
        >>> curve = positive_reliability([[0.2, 0.8], [0.9, 0.1]], [1, 0], bins=2)
        >>> curve.low, curve.frequency
        ((0.0, 0.5), (0.0, 1.0))
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    probability: tuple[float, ...]
    frequency: tuple[float, ...]
    count: tuple[int, ...]


@_takes_positive
@takes_arrays
def positive_reliability(data: PredictionRecord, bins: int = 10) -> PositiveReliability:
    """Return the reliability curve of the positive class, over probabilities from 0 to 1.

    The curve of the confidence has only probabilities of 0.5 and more, and says nothing of which
    class they are of.

    Args:
        data: Predictions of two classes, or probabilities of them, (N, 2), or of the positive one,
            (N,), followed by the labels.
        bins: Number of bins of equal width.

    Returns:
        Mean probability, share of positive examples and number of examples of each bin.

    Raises:
        UserError: There are not two classes, or examples of one alone.

    Example:
        >>> import torch
        >>> from falconcal import Predictions
        >>> from falconcal.metrics import positive_reliability
        >>> positive = torch.tensor([0.9, 0.8, 0.2, 0.1]).double()
        >>> probs = torch.stack([1 - positive, positive], 1)
        >>> predictions = Predictions(probs.log(), torch.tensor([1, 0, 0, 0]))
        >>> curve = positive_reliability(predictions, bins=2)
        >>> curve.frequency, curve.count
        ((0.0, 0.5), (2, 2))
    """
    positive, truth = _positive_class(data)
    index = bin_index(positive, bins)
    counts = torch.bincount(index, minlength=bins).double()
    means, shares = (
        torch.bincount(index, weights=values.double(), minlength=bins) / counts
        for values in (positive, truth)
    )
    ends = numpy.linspace(0, 1, bins + 1).tolist()
    return PositiveReliability(
        tuple(ends[:-1]),
        tuple(ends[1:]),
        tuple(means.tolist()),
        tuple(shares.tolist()),
        tuple(int(count) for count in counts),
    )


@dataclass(frozen=True)
class ThresholdRow:
    """What follows when examples are called positive from a probability on.

    Args:
        threshold: The probability.
        called_positive: The share of examples that are called positive.
        precision: The share of positive examples among these; NaN where there are none.
        recall: The share of positive examples that are called so.
        specificity: The share of negative examples that are not.
        expected_precision: What the model itself says of the precision: the mean probability of
            those called positive; NaN where there are none.

    Example:
        >>> from falconcal.metrics import threshold_table
        >>> (row,) = threshold_table([[0.2, 0.8], [0.9, 0.1]], [1, 0], thresholds=(0.5,))
        >>> row.precision, row.recall
        (1.0, 1.0)
    """

    threshold: float
    called_positive: float
    precision: float
    recall: float
    specificity: float
    expected_precision: float


@_takes_positive
@takes_arrays
def threshold_table(
    data: PredictionRecord, *, thresholds: tuple[float, ...] = THRESHOLDS
) -> tuple[ThresholdRow, ...]:
    """Return what follows from each threshold on the positive class's probability.

    Args:
        data: Predictions of two classes, or probabilities of them, (N, 2), or of the positive one,
            (N,), followed by the labels.
        thresholds: Probabilities from which on an example is called positive.

    Returns:
        One row per threshold.

    Raises:
        UserError: There are not two classes, or examples of one alone.

    Example:
        >>> import torch
        >>> from falconcal import Predictions
        >>> from falconcal.metrics import threshold_table
        >>> positive = torch.tensor([0.9, 0.8, 0.3, 0.1]).double()
        >>> probs = torch.stack([1 - positive, positive], 1)
        >>> predictions = Predictions(probs.log(), torch.tensor([1, 0, 1, 0]))
        >>> (row,) = threshold_table(predictions, thresholds=(0.5,))
        >>> row.precision, row.recall, row.specificity, round(row.expected_precision, 2)
        (0.5, 0.5, 0.5, 0.85)
    """
    positive, truth = _positive_class(data)
    return tuple(_threshold_row(positive, truth, one) for one in thresholds)


def _threshold_row(positive: Tensor, truth: Tensor, threshold: float) -> ThresholdRow:
    called = positive >= threshold
    right = (called & truth).double().sum()
    return ThresholdRow(
        threshold,
        float(called.double().mean()),
        float(right / called.sum()),
        float(right / truth.sum()),
        float((~called & ~truth).double().sum() / (~truth).sum()),
        float(positive[called].mean()),
    )


def _positive_class(data: PredictionRecord) -> tuple[Tensor, Tensor]:
    """Return the positive class's probability and whether it is the true one: (N,), (N,)."""
    if not isinstance(data, Predictions) or data.classes != 2:
        got = data.classes if isinstance(data, Predictions) else type(data).__name__
        raise UserError(f"expected the probabilities of two classes, got {got}.")
    known = data.labels >= 0
    truth = data.labels[known] == 1
    if not 0 < int(truth.sum()) < len(truth):
        raise UserError("expected examples of both classes, got one class alone.")
    return data.log_probs[known].exp()[:, 1].double(), truth
