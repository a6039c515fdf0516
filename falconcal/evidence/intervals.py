"""Confidence intervals for any metric, resampling examples or clusters of them."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real

import numpy
import torch

from falconcal.data.conversion import ArrayLike, as_tensor
from falconcal.errors import UserError, described, unknown
from falconcal.evidence.binned import BINNED, classwise_residuals, inverted
from falconcal.evidence.ordered import FIGURES, ORDERED, OutlierFigure, outlier_draws
from falconcal.evidence.resampling import MEANS, Generator
from falconcal.metrics import CLASS_METRICS, METRICS, outlier_detection
from falconcal.metrics.outliers import Signal, signal_of
from falconcal.metrics.scored import labelled, labelled_predictions, scores_of
from falconcal.predictions import Data, Scores

MIRRORED = {"smooth_ece"}  # biased upwards, and no norm of residuals
UNLABELLED = {"entropy", "confidence"}
Metric = Callable[[Scores], float]


@dataclass(frozen=True)
class Interval:
    """A value with the bounds between which the truth lies at the given level of confidence."""

    value: float
    low: float
    high: float
    level: float = 0.95


def interval(
    data: Data,
    metric: str | Metric,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return an interval of a metric of the table, or of any function of scores.

    ``clusters`` (N,) numbers what belongs together, such as the levels of one image: members are
    resampled together. Errors of calibration are biased upwards: their interval says where the
    truth lies, and a small sample's value may lie above it.
    """
    if isinstance(metric, str) and metric in CLASS_METRICS:
        return _classwise(data, str(metric), level, resamples, seed, clusters)
    scores = checked_scores(data, metric)
    groups = _checked_clusters(clusters, scores, resamples)
    generator = numpy.random.default_rng(seed)
    if metric in BINNED:
        residuals = BINNED[str(metric)].residuals(scores)
        drawn = residuals.draws(resamples, generator, groups)
        low, high = inverted(residuals.observed(), drawn, checked_level(level), residuals.norm)
        return Interval(METRICS[str(metric)](scores), low, min(1.0, high), level)
    value = _of(metric)(scores)
    if metric == "accuracy" and value in (0.0, 1.0):
        units = len(scores) if groups is None else len(numpy.unique(groups))
        return _of_a_sure_thing(value, units, checked_level(level))
    values = draws(scores, metric, resamples, seed, clusters)
    return bounds_of_draws(value, values, level, mirrored=metric in MIRRORED)


def _of_a_sure_thing(accuracy: float, units: int, level: float) -> Interval:
    """Return Clopper and Pearson's interval where all or none are right and resamples are alike."""
    lowest = ((1 - level) / 2) ** (1 / units)  # at which all are right as rarely as is allowed
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
    """Return an interval of AUROC, AUPR or the false positive rate, resampling both samples."""
    if figure not in FIGURES:
        raise unknown("figure of outlier detection", figure, FIGURES)
    value = getattr(outlier_detection(inside, outside, signal), figure)
    generator = numpy.random.default_rng(seed)
    signals = signal_of(inside, signal), signal_of(outside, signal)
    return bounds_of_draws(value, outlier_draws(*signals, figure, resamples, generator), level)


def draws(
    scores: Scores,
    metric: str | Metric,
    resamples: int,
    seed: int,
    clusters: ArrayLike | None = None,
) -> numpy.ndarray:
    """Return the metric of each resample, (R,): all at once where it can be, else one by one."""
    groups = _checked_clusters(clusters, scores, resamples)
    generator = numpy.random.default_rng(seed)
    if metric in MEANS:
        return MEANS[str(metric)].draws(scores, resamples, generator, groups)
    if metric in BINNED:
        return BINNED[str(metric)].draws(scores, resamples, generator, groups)
    if metric in ORDERED and groups is None:
        return ORDERED[str(metric)](scores, resamples, generator)
    return loop(scores, _of(metric), resamples, generator, groups)


def loop(
    scores: Scores,
    metric: Metric,
    resamples: int,
    generator: Generator,
    clusters: numpy.ndarray | None = None,
) -> numpy.ndarray:
    """Return the metric of each resample the plain way: draw, take, measure."""
    units = len(scores) if clusters is None else len(numpy.unique(clusters))
    members = _members(clusters) if clusters is not None else None
    values = []
    for _ in range(resamples):
        chosen = generator.integers(units, size=units)
        if members is not None:
            chosen = numpy.concatenate([members[unit] for unit in chosen])
        values.append(metric(scores.take(torch.from_numpy(chosen))))
    return numpy.array(values)


def bounds_of_draws(
    value: float, values: numpy.ndarray, level: float, *, mirrored: bool = False
) -> Interval:
    """Return the interval that holds the given share of the draws, or its mirror image."""
    low, high = numpy.quantile(values, [(1 - checked_level(level)) / 2, (1 + level) / 2])
    if mirrored:
        low, high = max(0.0, 2 * value - high), max(0.0, 2 * value - low)
    return Interval(value, float(low), float(high), level)


def checked_scores(data: Data, metric: str | Metric) -> Scores:
    """Return scores fit for a metric."""
    if not isinstance(metric, str) and not callable(metric):
        raise UserError(
            f"expected the name of a metric, or a function of scores, got {described(metric)}."
        )
    if isinstance(metric, str) and metric not in METRICS:
        raise unknown("metric", metric, {**METRICS, **CLASS_METRICS})
    if not isinstance(metric, str) or metric in UNLABELLED:
        return scores_of(data)
    return labelled(data, metric)


def _classwise(
    data: Data,
    metric: str,
    level: float,
    resamples: int,
    seed: int,
    clusters: ArrayLike | None,
) -> Interval:
    if clusters is not None:
        raise UserError(f"expected no clusters for {metric}, got some: they are not supported.")
    predictions = labelled_predictions(data, metric)
    observed, drawn = classwise_residuals(predictions, resamples, numpy.random.default_rng(seed))

    def norm(residuals: numpy.ndarray) -> numpy.ndarray:
        errors: numpy.ndarray = numpy.abs(residuals).sum(-1) / predictions.classes
        return errors

    low, high = inverted(observed, drawn, checked_level(level), norm)
    return Interval(CLASS_METRICS[metric](predictions), low, min(1.0, high), level)


def _of(metric: str | Metric) -> Metric:
    return METRICS[metric] if isinstance(metric, str) else metric


def checked_level(level: float) -> float:
    if not isinstance(level, Real) or not 0 < level < 1:
        raise UserError(f"expected a level between 0 and 1, got {level!r}.")
    return level


def _checked_clusters(
    clusters: ArrayLike | None, scores: Scores, resamples: int
) -> numpy.ndarray | None:
    if not isinstance(resamples, Integral) or resamples < 2:
        raise UserError(f"expected at least 2 resamples, a whole number, got {resamples!r}.")
    return None if clusters is None else checked_clusters(clusters, len(scores))


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
