"""Confidence intervals for any metric, resampling examples or clusters of them."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real

import numpy
import torch

from falconcal.core.array_conversion import ArrayLike, as_tensor
from falconcal.errors import UserError, described, unknown_name_error
from falconcal.evidence.binned_errors import (
    BINNED_ERRORS,
    classwise_residuals,
    inverted_test_interval,
)
from falconcal.evidence.rank_statistics import (
    OUTLIER_FIGURES,
    RANK_DRAWS,
    OutlierFigure,
    outlier_draws,
)
from falconcal.evidence.resampling import example_values, mean_draws
from falconcal.metrics import METRICS, Metric, outlier_detection
from falconcal.metrics.metric_inputs import labelled, labelled_predictions, scores_of
from falconcal.metrics.outlier_detection import Signal, signal_of
from falconcal.metrics.predictions import Data, PredictionRecord, Scores

ScoreFunction = Callable[[Scores], float]
AnyMetric = str | Metric | ScoreFunction  # a name of METRICS, a record, or a function of one's own


@dataclass(frozen=True)
class Interval:
    """A value and the bounds between which the true value lies at a level of confidence.

    The value of a calibration error may lie above its bounds: it is biased upwards, and they are
    not.

    Example:
        >>> from falconcal.evidence import Interval
        >>> Interval(0.5, low=0.4, high=0.6)
        Interval(value=0.5, low=0.4, high=0.6, level=0.95)
    """

    value: float
    """The value of the sample."""
    low: float
    """The lower bound."""
    high: float
    """The upper bound."""
    level: float = 0.95
    """The level of confidence."""


def interval(
    data: Data,
    metric: AnyMetric,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return a bootstrap confidence interval of a metric over examples.

    Calibration errors are biased upwards, so their interval inverts a test and says where the true
    error lies; the value of a small sample may lie above it.

    Args:
        data: Predictions, scores, or a pair of probabilities (N, C) and labels (N,).
        metric: A name of ``METRICS``, a ``Metric``, or a function of scores.
        level: The level of confidence, above 0 and below 1.
        resamples: How many bootstrap resamples are drawn, at least 2.
        seed: Of the resamples; the same seed gives the same interval.
        clusters: Numbers (N,) of what belongs together, such as the levels of one image; members
            are resampled together.

    Returns:
        The value with its bounds.

    Raises:
        UsageError: If the metric has another name than those of ``METRICS``.
        UserError: If an argument is not as described, or the data lacks what the metric needs.

    Example:
        All 20 answers are right, so the accuracy is at least 0.025 ** (1 / 20) (Clopper and
        Pearson).

        >>> import falconcal
        >>> found = falconcal.interval(([[0.9, 0.1]] * 20, [0] * 20), "accuracy")
        >>> found.value, round(found.low, 4), found.high
        (1.0, 0.8316, 1.0)
    """
    record = find_metric(metric)
    if record.resampling == "class_gaps":
        return _classwise_interval(data, record, level, resamples, seed, clusters)
    sample = checked_record(data, record)
    groups = _checked_clusters(clusters, sample, resamples)
    if record.resampling in BINNED_ERRORS and isinstance(sample, Scores):
        return _error_interval(sample, record, level, resamples, seed, groups)
    value = record(sample)
    if record.resampling == "proportion" and value in (0.0, 1.0):
        units = len(sample) if groups is None else len(numpy.unique(groups))
        return _clopper_pearson(value, units, checked_level(level))
    values = bootstrap_values(sample, record, resamples, seed, clusters)
    # biased upwards like the other errors, but no norm of residuals
    mirrored = record.resampling == "smoothed_gaps"
    return bounds_of_draws(value, values, level, mirrored=mirrored)


def _error_interval(
    scores: Scores,
    metric: Metric,
    level: float,
    resamples: int,
    seed: int,
    clusters: numpy.ndarray | None,
) -> Interval:
    residuals = BINNED_ERRORS[metric.resampling].residuals(scores)
    drawn = residuals.draws(resamples, numpy.random.default_rng(seed), clusters)
    low, high = inverted_test_interval(
        residuals.observed(), drawn, checked_level(level), residuals.norm
    )
    return Interval(metric(scores), low, min(1.0, high), level)


def _clopper_pearson(accuracy: float, units: int, level: float) -> Interval:
    """Return Clopper and Pearson's interval, for samples whose resamples are all alike."""
    lowest = ((1 - level) / 2) ** (1 / units)  # where all are right with that probability
    low, high = (lowest, 1.0) if accuracy == 1.0 else (0.0, 1 - lowest)
    return Interval(accuracy, low, high, level)


def outlier_interval(
    inside: Data,
    outside: Data,
    figure: OutlierFigure = "auroc",
    *,
    signal: Signal = "confidence",
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Return an interval of a figure of outlier detection, resampling both samples.

    Args:
        inside: Predictions or scores of in-domain examples, or their probabilities.
        outside: The same of outliers.
        figure: ``"auroc"``, ``"aupr"`` or ``"fpr_at_95"``.
        signal: ``"confidence"`` or ``"entropy"``.
        level: The level of confidence, above 0 and below 1.
        resamples: How many bootstrap resamples are drawn, at least 2.
        seed: Of the resamples; the same seed gives the same interval.

    Returns:
        The value with its bounds.

    Raises:
        UsageError: If the figure has another name.
        UserError: If there are no examples in one of the two, or the signal is another.

    Example:
        Every in-domain example is surer than every outlier, in any resample.

        >>> from falconcal.evidence import outlier_interval
        >>> outlier_interval([[0.9, 0.1], [0.8, 0.2]], [[0.6, 0.4], [0.7, 0.3]])
        Interval(value=1.0, low=1.0, high=1.0, level=0.95)
    """
    if figure not in OUTLIER_FIGURES:
        raise unknown_name_error("figure of outlier detection", figure, OUTLIER_FIGURES)
    value = getattr(outlier_detection(inside, outside, signal), figure)
    generator = numpy.random.default_rng(seed)
    signals = signal_of(inside, signal), signal_of(outside, signal)
    return bounds_of_draws(value, outlier_draws(*signals, figure, resamples, generator), level)


def bootstrap_values(
    sample: PredictionRecord,
    metric: AnyMetric,
    resamples: int,
    seed: int,
    clusters: ArrayLike | None = None,
) -> numpy.ndarray:
    """Return the metric of each resample, (R,): all at once where it can be, else one by one."""
    record = find_metric(metric)
    groups = _checked_clusters(clusters, sample, resamples)
    generator = numpy.random.default_rng(seed)
    if isinstance(sample, Scores):
        if record.values is not None:
            return mean_draws(example_values(record, sample), resamples, generator, groups)
        if record.resampling in BINNED_ERRORS:
            binned = BINNED_ERRORS[record.resampling]
            return binned.draws(sample, resamples, generator, groups)
        if record.resampling in RANK_DRAWS and groups is None:
            return RANK_DRAWS[record.resampling](sample, resamples, generator)
    return resample_one_by_one(sample, record, resamples, generator, groups)


def resample_one_by_one(
    sample: PredictionRecord,
    metric: Callable[[PredictionRecord], float],
    resamples: int,
    generator: numpy.random.Generator,
    clusters: numpy.ndarray | None = None,
) -> numpy.ndarray:
    """Return the metric of each resample the plain way: draw, take, measure."""
    units = len(sample) if clusters is None else len(numpy.unique(clusters))
    members = _members(clusters) if clusters is not None else None
    values = []
    for _ in range(resamples):
        chosen = generator.integers(units, size=units)
        if members is not None:
            chosen = numpy.concatenate([members[unit] for unit in chosen])
        values.append(metric(sample.take(torch.from_numpy(chosen))))
    return numpy.array(values)


def bounds_of_draws(
    value: float, values: numpy.ndarray, level: float, *, mirrored: bool = False
) -> Interval:
    """Return the interval that holds the middle share of the draws, or its mirror image."""
    low, high = numpy.quantile(values, [(1 - checked_level(level)) / 2, (1 + level) / 2])
    if mirrored:
        low, high = max(0.0, 2 * value - high), max(0.0, 2 * value - low)
    return Interval(value, float(low), float(high), level)


def find_metric(metric: AnyMetric) -> Metric:
    """Return the record of a metric: by name, as it is, or one made for a function of scores."""
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        if metric not in METRICS:
            raise unknown_name_error("metric", metric, METRICS)
        return METRICS[metric]
    if not callable(metric):
        raise UserError(
            f"expected the name of a metric, or a function of scores, got {described(metric)}."
        )
    return Metric(metric, getattr(metric, "__name__", "the metric"), needs=())


def checked_record(data: Data, metric: Metric) -> PredictionRecord:
    """Return scores fit for a metric, or predictions where it needs all classes."""
    if "all_classes" in metric.needs:
        return labelled_predictions(data, metric.label)
    return labelled(data, metric.label) if "labels" in metric.needs else scores_of(data)


def _classwise_interval(
    data: Data,
    metric: Metric,
    level: float,
    resamples: int,
    seed: int,
    clusters: ArrayLike | None,
) -> Interval:
    if clusters is not None:
        raise UserError(f"clusters are not supported for {metric.label}: call it without them.")
    predictions = labelled_predictions(data, metric.label)
    observed, drawn = classwise_residuals(predictions, resamples, numpy.random.default_rng(seed))

    def norm(residuals: numpy.ndarray) -> numpy.ndarray:
        errors: numpy.ndarray = numpy.abs(residuals).sum(-1) / predictions.classes
        return errors

    low, high = inverted_test_interval(observed, drawn, checked_level(level), norm)
    return Interval(metric(predictions), low, min(1.0, high), level)


def checked_level(level: float) -> float:
    if not isinstance(level, Real) or not 0 < level < 1:
        raise UserError(f"expected a level between 0 and 1, such as 0.95, got {level!r}.")
    return level


def _checked_clusters(
    clusters: ArrayLike | None, sample: PredictionRecord, resamples: int
) -> numpy.ndarray | None:
    if not isinstance(resamples, Integral) or resamples < 2:
        raise UserError(f"expected at least 2 resamples, a whole number, got {resamples!r}.")
    return None if clusters is None else checked_clusters(clusters, len(sample))


def checked_clusters(clusters: ArrayLike, examples: int) -> numpy.ndarray:
    """Return the number of each example's cluster, (N,)."""
    numbers = as_tensor(clusters, "clusters")
    if numbers.shape != (examples,):
        raise UserError(
            f"expected one cluster per example, shape ({examples},), got {tuple(numbers.shape)}."
        )
    return numbers.cpu().numpy()


def _members(clusters: numpy.ndarray) -> list[numpy.ndarray]:
    order = numpy.argsort(clusters, kind="stable")
    _, starts = numpy.unique(clusters[order], return_index=True)
    return numpy.split(order, starts[1:])
