"""Comparing two methods on the same examples, with an effect size beside every p-value.

The paper's tests are Wilcoxon's: signed rank for paired confidences, rank sum for two groups. Many
comparisons are corrected as Holm (Scandinavian Journal of Statistics 1979) does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import scipy.stats
from torch import Tensor

from falconcal.errors import UserError
from falconcal.evidence.intervals import Interval, bounds_of_draws, checked_scores, draws
from falconcal.evidence.resampling import SUM_METRICS, cluster_sums, taken_sums
from falconcal.metrics import METRICS
from falconcal.predictions import Predictions, Scores


@dataclass(frozen=True)
class RankTest:
    """A p-value and how large the difference is: -1 and 1 are all one way, 0 is none."""

    p_value: float
    effect: float
    median_difference: float
    examples: int


def signed_rank(first: Tensor, second: Tensor) -> RankTest:
    """Wilcoxon's signed-rank test of paired values, with the rank-biserial correlation."""
    if first.shape != second.shape or first.ndim != 1:
        raise UserError(
            f"expected pairs of values, two of the same shape (N,), got {tuple(first.shape)} and "
            f"{tuple(second.shape)}: are both methods measured on the same examples?"
        )
    difference = (first.double() - second.double()).numpy()
    moved = difference[difference != 0]
    if len(moved) == 0:
        return RankTest(1.0, 0.0, 0.0, len(difference))
    ranks = scipy.stats.rankdata(numpy.abs(moved))
    effect = float((ranks * numpy.sign(moved)).sum() / ranks.sum())
    p_value = float(scipy.stats.wilcoxon(difference, zero_method="wilcox").pvalue)
    return RankTest(p_value, effect, float(numpy.median(difference)), len(difference))


def rank_sum(first: Tensor, second: Tensor) -> RankTest:
    """Wilcoxon's rank-sum test of two groups, with Cliff's delta."""
    if min(len(first), len(second)) == 0:
        raise UserError("expected values in both groups, got an empty one.")
    one, other = first.double().numpy(), second.double().numpy()
    test = scipy.stats.mannwhitneyu(one, other)
    delta = float(2 * test.statistic / (len(one) * len(other)) - 1)
    difference = float(numpy.median(one) - numpy.median(other))
    return RankTest(float(test.pvalue), delta, difference, len(one) + len(other))


def paired_difference(
    first: Predictions | Scores,
    second: Predictions | Scores,
    metric: str,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    clusters: Tensor | None = None,
) -> Interval:
    """Return the first's metric less the second's, with the interval of a paired bootstrap.

    The same seed draws the same examples for both, so what makes an example hard for both cancels.
    """
    one, other = checked_scores(first, metric), checked_scores(second, metric)
    if len(one) != len(other) or (one.label != other.label).any():
        raise UserError("expected both methods on the same examples, got different labels.")
    value = METRICS[metric](one) - METRICS[metric](other)
    numbers = numpy.arange(len(one)) if clusters is None else clusters.numpy()
    if metric in SUM_METRICS:
        values = _paired_sums(one, other, metric, resamples, seed, numbers)
    else:
        values = draws(one, metric, resamples, seed, clusters) - draws(
            other, metric, resamples, seed, clusters
        )
    return bounds_of_draws(value, values, level)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the order given."""
    values = numpy.asarray(p_values, dtype=float)
    if values.size and not ((values >= 0) & (values <= 1)).all():
        raise UserError(f"expected p-values from 0 to 1, got {list(p_values)}.")
    order = numpy.argsort(values)
    stepped = (len(values) - numpy.arange(len(values))) * values[order]
    corrected = numpy.empty_like(values)
    corrected[order] = numpy.minimum(1.0, numpy.maximum.accumulate(stepped))
    return [float(value) for value in corrected]


def _paired_sums(
    one: Scores, other: Scores, metric: str, resamples: int, seed: int, numbers: numpy.ndarray
) -> numpy.ndarray:
    """Return differences over resamples, both methods' features drawn with the same counts."""
    sums = SUM_METRICS[metric]
    together = numpy.concatenate([sums.features(one), sums.features(other)], 1)
    units = cluster_sums(together, numbers)  # (G, 2 F)
    generator, width = numpy.random.default_rng(seed), together.shape[1] // 2
    taken = taken_sums(numpy.ones(len(units)), units, resamples, generator)  # (R, 2 F)
    differences: numpy.ndarray = sums.finish(taken[:, :width]) - sums.finish(taken[:, width:])
    return differences
