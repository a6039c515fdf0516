"""Comparing two methods on the same examples, with an effect size beside every p-value.

The paper's tests are Wilcoxon's: signed rank for paired confidences, rank sum for two groups.
P-values of several comparisons are corrected by Holm's method (Scandinavian Journal of Statistics
1979).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import scipy  # its parts are loaded when they are first used

from falconcal.core.array_conversion import ArrayLike, as_tensor
from falconcal.errors import UserError
from falconcal.evidence.binned_errors import BINNED_ERRORS, Residuals
from falconcal.evidence.differences import (
    Difference,
    Estimate,
    bootstrap_p_value,
    difference_of,
    error_figure,
)
from falconcal.evidence.intervals import (
    AnyMetric,
    Interval,
    bounds_of_draws,
    checked_clusters,
    checked_record,
    find_metric,
    resample_one_by_one,
)
from falconcal.evidence.resampling import (
    Cells,
    clustered,
    example_values,
    mean_draws,
    neighbours,
)
from falconcal.metrics import Metric
from falconcal.metrics.predictions import Data, Scores


@dataclass(frozen=True)
class RankTest:
    """The outcome of a rank test: a p-value and how large the difference is.

    Example:
        >>> from falconcal.evidence import signed_rank
        >>> signed_rank([0.5, 0.25], [0.5, 0.25])
        RankTest(p_value=1.0, effect=0.0, median_difference=0.0, examples=2)
    """

    p_value: float
    """The two-sided p-value."""
    effect: float
    """From -1 to 1: at the ends all values differ in one direction, 0 is no difference."""
    median_difference: float
    """The median of paired differences, or the difference of two groups' medians."""
    examples: int
    """How many values were compared."""


def signed_rank(first: ArrayLike, second: ArrayLike) -> RankTest:
    """Wilcoxon's signed-rank test of paired values, with the rank-biserial correlation as effect.

    The effect is (sum of ranks where the first is larger - sum where it is smaller) / sum of all
    ranks.

    Args:
        first: Values of the first method, (N,).
        second: Values of the second on the same examples, (N,).

    Returns:
        The p-value, the effect, the median of the differences, and how many pairs there are.

    Raises:
        UserError: If the two do not have the same shape (N,).

    Example:
        Differences of 1, 2, 3 and -4: ranks (1 + 2 + 3 - 4) / 10.

        >>> from falconcal.evidence import signed_rank
        >>> round(signed_rank([1, 2, 3, 0], [0, 0, 0, 4]).effect, 6)
        0.2
    """
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
    """Wilcoxon's rank-sum test of two groups of values, with Cliff's delta as effect.

    The effect is the share of pairs in which the first is larger less the share in which it is
    smaller.

    Args:
        first: Values of the first group, (N,).
        second: Values of the second group, (M,).

    Returns:
        The p-value, the effect, the difference of the medians, and how many values there are.

    Raises:
        UserError: If a group is empty or not of shape (N,).

    Example:
        Of the four pairs three are larger and one is smaller: 3/4 - 1/4.

        >>> from falconcal.evidence import rank_sum
        >>> rank_sum([2.0, 4.0], [1.0, 3.0]).effect
        0.5
    """
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
    metric: AnyMetric,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return the first's metric less the second's, with an interval by a paired bootstrap.

    The same examples are drawn for both, so what makes an example hard for both cancels. For
    calibration errors the interval says where the difference of the true errors lies, and the
    difference seen may lie outside.

    Args:
        first: Predictions or scores of the first method, or probabilities and labels.
        second: The same of the second method, on the same examples in the same order.
        metric: A name of ``METRICS``, a ``Metric``, or a function of scores.
        level: The level of confidence, above 0 and below 1.
        resamples: How many bootstrap resamples are drawn, at least 2.
        seed: Of the resamples; the same seed gives the same interval.
        clusters: Numbers (N,) of what belongs together, such as the levels of one image; members
            are resampled together.

    Returns:
        The difference with its bounds.

    Raises:
        UsageError: If the metric has another name than those of ``METRICS``.
        UserError: If the labels of the two differ, or the metric needs all classes.

    Example:
        The second is less sure by 0.25 on every example, in every resample.

        >>> import falconcal
        >>> first, second = ([[0.75, 0.25]] * 8, [0, 1] * 4), ([[0.5, 0.5]] * 8, [0, 1] * 4)
        >>> falconcal.paired_difference(first, second, "confidence")
        Interval(value=0.25, low=0.25, high=0.25, level=0.95)
    """
    found = paired_test(
        first,
        second,
        metric,
        level=level,
        resamples=resamples,
        seed=seed,
        clusters=clusters,
    )
    return Interval(found.value, found.low, found.high, level)


def paired_test(
    first: Data,
    second: Data,
    metric: AnyMetric,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Difference:
    """Return what ``paired_difference`` does, with a p-value and an effect size.

    Args:
        first: Predictions or scores of the first method, or probabilities and labels.
        second: The same of the second method, on the same examples in the same order.
        metric: A name of ``METRICS``, a ``Metric``, or a function of scores.
        level: The level of confidence, above 0 and below 1.
        resamples: How many bootstrap resamples are drawn, at least 2.
        seed: Of the resamples; the same seed gives the same interval.
        clusters: Numbers (N,) of what belongs together; members are resampled together.

    Returns:
        The difference with its bounds, the p-value against no difference, and the difference as a
        share of the second's value.

    Raises:
        UsageError: If the metric has another name than those of ``METRICS``.
        UserError: If the labels of the two differ, or the metric needs all classes.

    Example:
        The first is surer by 0.25 on every example: no resample of 1000 shows less.

        >>> from falconcal.evidence import paired_test
        >>> first, second = ([[0.75, 0.25]] * 8, [0, 1] * 4), ([[0.5, 0.5]] * 8, [0, 1] * 4)
        >>> found = paired_test(first, second, "confidence")
        >>> found.value, round(found.p_value, 4), found.effect
        (0.25, 0.002, 0.5)
    """
    record = find_metric(metric)
    one, other = _checked_scores(first, record), _checked_scores(second, record)
    if len(one) != len(other) or (one.label != other.label).any():
        raise UserError(
            "expected both methods on the same examples in the same order, got different labels."
        )
    groups = None if clusters is None else checked_clusters(clusters, len(one))
    if record.resampling in BINNED_ERRORS:
        return difference_of(*error_figures(one, other, record, level, resamples, seed, groups))
    value, base = record(one) - record(other), record(other)
    draws = _differences(one, other, record, resamples, seed, groups)
    bounds = bounds_of_draws(value, draws, level)
    effect = value / base if base else None
    return Difference(value, bounds.low, bounds.high, bootstrap_p_value(draws), effect, level)


def _checked_scores(data: Data, metric: Metric) -> Scores:
    sample = checked_record(data, metric)
    if not isinstance(sample, Scores):
        raise UserError(
            f"differences of {metric.label} are not supported: it needs the probabilities of all "
            "classes, and differences are of scores. Compare its intervals, or choose ece."
        )
    return sample


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's method.

    The smallest of K is multiplied by K, the next by K - 1 and so on; none comes out below a
    smaller one, nor above 1.

    Args:
        p_values: P-values from 0 to 1.

    Returns:
        The corrected p-values, in the order given.

    Raises:
        UserError: If a value is not from 0 to 1.

    Example:
        >>> from falconcal.evidence import holm
        >>> [round(value, 6) for value in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
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
    metric: Metric,
    resamples: int,
    seed: int,
    clusters: numpy.ndarray | None,
) -> numpy.ndarray:
    """Return the difference of the metric in each resample, the same examples taken for both."""
    generator = numpy.random.default_rng(seed)
    if metric.values is not None:
        values = example_values(metric, one) - example_values(metric, other)
        return mean_draws(values, resamples, generator, clusters)
    again = numpy.random.default_rng(seed)  # the same draws for both
    first = resample_one_by_one(one, metric, resamples, generator, clusters)
    second = resample_one_by_one(other, metric, resamples, again, clusters)
    differences: numpy.ndarray = first - second
    return differences


def error_figures(
    one: Scores,
    other: Scores,
    metric: Metric,
    level: float,
    resamples: int,
    seed: int,
    clusters: numpy.ndarray | None,
) -> list[Estimate]:
    """Return an error of calibration of both, the same examples taken for both."""
    both = [BINNED_ERRORS[metric.resampling].residuals(scores) for scores in (one, other)]
    values = [metric(scores) for scores in (one, other)]
    drawn = _paired_draws(both[0], both[1], resamples, numpy.random.default_rng(seed), clusters)
    return [
        error_figure(value, residuals.observed(), taken, residuals.norm, level)
        for value, residuals, taken in zip(values, both, drawn, strict=True)
    ]


def _paired_draws(
    first: Residuals,
    second: Residuals,
    resamples: int,
    generator: numpy.random.Generator,
    clusters: numpy.ndarray | None,
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the residuals of each resample of both: (R, M), (R, M)."""
    features = numpy.concatenate([first.features(), second.features()], 1)  # (N, 2 + 2 M)
    if clusters is None:  # examples are alike if they are alike for both methods
        both = first.cell * (int(second.cell.max()) + 1) + second.cell
        cells = Cells.of(neighbours(both), features)
    else:
        cells = clustered(features, clusters)
    sums = cells.sums(resamples, generator)  # (R, 2 + 2 M)
    residuals = sums / sums[:, :1]
    return residuals[:, 1 : 1 + first.bins], residuals[:, 2 + first.bins :]
