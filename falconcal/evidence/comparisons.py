"""Comparing two methods on the same examples, with an effect size beside every p-value.

The paper's tests are Wilcoxon's: signed rank for paired confidences, rank sum for two groups. Many
comparisons are corrected as Holm (Scandinavian Journal of Statistics 1979) does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import scipy.stats

from falconcal.data.conversion import ArrayLike, as_tensor
from falconcal.errors import UserError
from falconcal.evidence.binned import BINNED, Residuals
from falconcal.evidence.differences import Figure, difference_of, error_figure
from falconcal.evidence.intervals import (
    Interval,
    bounds_of_draws,
    checked_clusters,
    checked_scores,
    loop,
)
from falconcal.evidence.resampling import MEANS, Cells, Generator, clustered, mean_draws, neighbours
from falconcal.metrics import METRICS
from falconcal.predictions import Data, Scores


@dataclass(frozen=True)
class RankTest:
    """A p-value and how large the difference is: -1 and 1 are all one way, 0 is none."""

    p_value: float
    effect: float
    median_difference: float
    examples: int


def signed_rank(first: ArrayLike, second: ArrayLike) -> RankTest:
    """Wilcoxon's signed-rank test of paired values, with the rank-biserial correlation."""
    first, second = as_tensor(first, "values"), as_tensor(second, "values")
    if first.shape != second.shape or first.ndim != 1:
        raise UserError(
            f"expected pairs of values, two of the same shape (N,), got {tuple(first.shape)} and "
            f"{tuple(second.shape)}: are both methods measured on the same examples?"
        )
    difference = (first.double() - second.double()).cpu().numpy()
    moved = difference[difference != 0]
    if len(moved) == 0:
        return RankTest(1.0, 0.0, 0.0, len(difference))
    ranks = scipy.stats.rankdata(numpy.abs(moved))
    effect = float((ranks * numpy.sign(moved)).sum() / ranks.sum())
    p_value = float(scipy.stats.wilcoxon(difference, zero_method="wilcox").pvalue)
    return RankTest(p_value, effect, float(numpy.median(difference)), len(difference))


def rank_sum(first: ArrayLike, second: ArrayLike) -> RankTest:
    """Wilcoxon's rank-sum test of two groups, with Cliff's delta."""
    one, other = (as_tensor(values, "values").double().cpu().numpy() for values in (first, second))
    if one.ndim != 1 or other.ndim != 1 or min(len(one), len(other)) == 0:
        raise UserError(
            f"expected values in both groups, (N,) and (M,), neither empty, got shapes {one.shape} "
            f"and {other.shape}."
        )
    test = scipy.stats.mannwhitneyu(one, other)
    delta = float(2 * test.statistic / (len(one) * len(other)) - 1)
    difference = float(numpy.median(one) - numpy.median(other))
    return RankTest(float(test.pvalue), delta, difference, len(one) + len(other))


def paired_difference(
    first: Data,
    second: Data,
    metric: str,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return the first's metric less the second's, with the interval of a paired bootstrap.

    The same seed draws the same examples for both, so what makes an example hard for both cancels.
    Of errors of calibration the interval says where the difference of the true ones lies.
    """
    one, other = checked_scores(first, metric), checked_scores(second, metric)
    if len(one) != len(other) or (one.label != other.label).any():
        raise UserError("expected both methods on the same examples, got different labels.")
    groups = None if clusters is None else checked_clusters(clusters, len(one))
    if metric in BINNED:
        found = difference_of(*error_figures(one, other, metric, level, resamples, seed, groups))
        return Interval(found.value, found.low, found.high, level)
    value = METRICS[metric](one) - METRICS[metric](other)
    return bounds_of_draws(value, _differences(one, other, metric, resamples, seed, groups), level)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the order given."""
    values = as_tensor(p_values, "p-values").double().cpu().numpy()
    if values.ndim != 1:
        raise UserError(f"expected a list of p-values, (K,), got shape {values.shape}.")
    if values.size and not ((values >= 0) & (values <= 1)).all():
        raise UserError(f"expected p-values from 0 to 1, got {list(p_values)}.")
    order = numpy.argsort(values)
    stepped = (len(values) - numpy.arange(len(values))) * values[order]
    corrected = numpy.empty_like(values)
    corrected[order] = numpy.minimum(1.0, numpy.maximum.accumulate(stepped))
    return [float(value) for value in corrected]


def _differences(
    one: Scores,
    other: Scores,
    metric: str,
    resamples: int,
    seed: int,
    clusters: numpy.ndarray | None,
) -> numpy.ndarray:
    """Return the difference of the metric in each resample, the same examples taken for both."""
    generator = numpy.random.default_rng(seed)
    if metric in MEANS:
        values = MEANS[metric].value(one) - MEANS[metric].value(other)
        return mean_draws(values, resamples, generator, clusters)
    again = numpy.random.default_rng(seed)  # the same draws for both
    first = loop(one, METRICS[metric], resamples, generator, clusters)
    second = loop(other, METRICS[metric], resamples, again, clusters)
    differences: numpy.ndarray = first - second
    return differences


def error_figures(
    one: Scores,
    other: Scores,
    metric: str,
    level: float,
    resamples: int,
    seed: int,
    clusters: numpy.ndarray | None,
) -> list[Figure]:
    """Return an error of calibration of both, the same examples taken for both."""
    both = [BINNED[metric].residuals(scores) for scores in (one, other)]
    values = [METRICS[metric](scores) for scores in (one, other)]
    drawn = _paired_draws(both[0], both[1], resamples, numpy.random.default_rng(seed), clusters)
    return [
        error_figure(value, residuals.observed(), taken, residuals.norm, level)
        for value, residuals, taken in zip(values, both, drawn, strict=True)
    ]


def _paired_draws(
    first: Residuals,
    second: Residuals,
    resamples: int,
    generator: Generator,
    clusters: numpy.ndarray | None,
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the residuals of each resample of both: (R, M), (R, M)."""
    features = numpy.concatenate([first.features(), second.features()], 1)  # (N, 2 + 2 M)
    if clusters is None:  # alike are those whom both methods treat alike
        both = first.cell * (int(second.cell.max()) + 1) + second.cell
        cells = Cells.of(neighbours(both), features)
    else:
        cells = clustered(features, clusters)
    sums = cells.sums(resamples, generator)  # (R, 2 + 2 M)
    residuals = sums / sums[:, :1]
    return residuals[:, 1 : 1 + first.bins], residuals[:, 2 + first.bins :]
