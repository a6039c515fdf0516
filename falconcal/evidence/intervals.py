"""Bootstrap confidence intervals for any metric, over examples or over clusters of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from falconcal.errors import UserError, unknown
from falconcal.evidence.resampling import SUM_METRICS, resampled
from falconcal.metrics import METRICS
from falconcal.metrics.scored import labelled, scores_of
from falconcal.predictions import Predictions, Scores

# errors of calibration are biased upwards: a resample is further from calibration than the sample
# by as much as the sample is from the truth, so their interval is mirrored at the value
BIASED = {"ece", "mce", "adaptive_ece", "rms_ce", "smooth_ece"}
UNLABELLED = {"entropy", "confidence"}


@dataclass(frozen=True)
class Interval:
    """A value with the bounds between which the truth lies at the given level of confidence."""

    value: float
    low: float
    high: float
    level: float = 0.95


def interval(
    data: Predictions | Scores,
    metric: str,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    clusters: Tensor | None = None,
) -> Interval:
    """Return a bootstrap interval of a metric of the table.

    ``clusters`` (N,) numbers what belongs together, such as the levels of one image: members are
    resampled together. Percentile bounds, mirrored at the value for errors of calibration.
    """
    scores = checked_scores(data, metric)
    value = METRICS[metric](scores)
    values = draws(scores, metric, resamples, seed, clusters)
    return bounds_of_draws(value, values, level, mirrored=metric in BIASED)


def draws(
    scores: Scores, metric: str, resamples: int, seed: int, clusters: Tensor | None = None
) -> numpy.ndarray:
    """Return the metric of each resample: all at once where sums allow it, else one by one."""
    if resamples < 2:
        raise UserError(f"expected at least 2 resamples, got {resamples}.")
    if clusters is not None and len(clusters) != len(scores):
        raise UserError(f"expected a cluster an example, {len(scores)}, got {len(clusters)}.")
    generator = numpy.random.default_rng(seed)
    groups = clusters.numpy() if clusters is not None else None
    if metric in SUM_METRICS:
        return resampled(SUM_METRICS[metric], scores, resamples, generator, groups)
    return loop(scores, METRICS[metric], resamples, generator, groups)


def loop(
    scores: Scores,
    metric: Callable[[Scores], float],
    resamples: int,
    generator: numpy.random.Generator,
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
    if not 0 < level < 1:
        raise UserError(f"expected a level between 0 and 1, got {level}.")
    low, high = numpy.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    if mirrored:
        low, high = max(0.0, 2 * value - high), max(0.0, 2 * value - low)
    return Interval(value, float(low), float(high), level)


def checked_scores(data: Predictions | Scores, metric: str) -> Scores:
    """Return scores fit for a metric of the table."""
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    return scores_of(data) if metric in UNLABELLED else labelled(data, metric)


def _members(clusters: numpy.ndarray) -> list[numpy.ndarray]:
    order = numpy.argsort(clusters, kind="stable")
    _, starts = numpy.unique(clusters[order], return_index=True)
    return numpy.split(order, starts[1:])
