"""Differences of figures on the same examples, and whether chance alone explains them.

The bias of an error of calibration does not cancel in a difference: of two calibrated methods the
one that spreads its confidences over more bins shows more error. So each true error is bounded on
its own, as in ``binned_errors``, at every chance of missing it, and two such bounds are joined by
the method of variance estimates recovery (MOVER: Zou and Donner, Statistics in Medicine 2008;
Donner and Zou, Statistical Methods in Medical Research 2012): what lies between an estimate and its
bound stands for a standard error, and the standard error of a difference follows from two of them
and their correlation. Each method may spread its error in any of three ways, so that makes nine
differences; the interval holds all of them. Figures without bias keep the percentiles of their
draws.
"""

from dataclasses import dataclass

import numpy

from falconcal.evidence.binned_errors import Norm, spreads
from falconcal.evidence.intervals import Interval, bounds_of_draws, checked_level

CHANCES = 100  # p-values at which bounds are known, evenly spaced by ratio
RESIDUALS_AT_ONCE = 2**16  # residuals that fit the cache while all errors are tried on them
STEPS = 24  # true errors tried along each spread


@dataclass(frozen=True, eq=False)
class ErrorBounds:
    """Where a true error may lie, for each spread over the bins and each chance of missing it.

    The last chance is 1, where low and high meet at an estimate without the bias.
    """

    chances: numpy.ndarray  # (S,) rising
    low: numpy.ndarray  # (D, S)
    high: numpy.ndarray  # (D, S)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A figure, what it is in each resample and, for an error of calibration, its bounds."""

    value: float
    resampled: numpy.ndarray  # (R,)
    bounds: ErrorBounds | None = None
    level: float = 0.95


@dataclass(frozen=True)
class Difference:
    """The first's figure less the second's, with its interval and p-value.

    For calibration errors the interval says where the difference of the true errors lies: the
    difference seen may lie outside.

    Example:
        >>> from falconcal import Predictions
        >>> from falconcal.evidence import pooled_difference
        >>> levels = [Predictions.from_probabilities([[0.75, 0.25]] * 8, [0, 1] * 4)] * 2
        >>> found = pooled_difference([levels], [levels], "micro_ece")
        >>> found.value, found.low, found.high, found.p_value
        (0.0, 0.0, 0.0, 1.0)
    """

    value: float
    """The difference seen."""
    low: float
    """The lower bound."""
    high: float
    """The upper bound."""
    p_value: float
    """The two-sided p-value against no difference."""
    effect: float | None
    """The difference as a share of the second's figure; None if that is 0."""
    level: float = 0.95
    """The level of confidence."""


def error_figure(
    value: float, observed: numpy.ndarray, drawn: numpy.ndarray, norm: Norm, level: float
) -> Estimate:
    """Return an error that is a norm of residuals: (F,), resamples (R, F)."""
    return Estimate(value, norm(drawn), error_bounds(observed, drawn, norm, level), level)


def error_bounds(
    observed: numpy.ndarray, drawn: numpy.ndarray, norm: Norm, level: float
) -> ErrorBounds:
    """Return the bounds of a norm of residuals, (F,), from resamples (R, F), one level exactly."""
    chance, seen = drawn - observed, float(norm(observed))
    reach = float(norm(chance).max())  # no error shows more beside its own norm, nor less
    errors = numpy.linspace(max(0.0, seen - reach), seen + reach, STEPS, dtype=drawn.dtype)
    chances = _chances(len(drawn), level)
    shares = numpy.concatenate([1 - chances / 2, chances / 2])  # of cases that show less
    found = []
    for direction in spreads(observed, chance, norm) or [numpy.zeros_like(observed)]:
        shown = _shown(errors, direction, chance, norm)
        found.append(_crossings(errors, numpy.sort(shown, 1), seen, shares))
    low, high = numpy.split(numpy.stack(found), 2, axis=1)
    return ErrorBounds(chances, low, high)


def interval_of(figure: Estimate) -> Interval:
    """Return a figure with its interval; a biased one may lie above it."""
    if figure.bounds is None:
        return bounds_of_draws(figure.value, figure.resampled, figure.level)
    index = _level_index(figure)
    low, high = figure.bounds.low[:, index].min(), figure.bounds.high[:, index].max()
    return Interval(figure.value, float(low), min(1.0, float(high)), figure.level)


def difference_of(first: Estimate, second: Estimate) -> Difference:
    """Return the difference of two figures that were drawn alike, at the level of the first."""
    value, draws = first.value - second.value, first.resampled - second.resampled
    effect = value / second.value if second.value else None
    if first.bounds is None or second.bounds is None or not draws.any():
        found = bounds_of_draws(value, draws, first.level)
        return Difference(
            value, found.low, found.high, bootstrap_p_value(draws), effect, first.level
        )
    low, high = mover_interval(first.bounds, second.bounds, _correlation(first, second))
    index, p_value = _level_index(first), _smallest(first.bounds.chances, (low > 0) | (high < 0))
    return Difference(value, float(low[index]), float(high[index]), p_value, effect, first.level)


def mover_interval(
    first: ErrorBounds, second: ErrorBounds, correlation: float
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the bounds of the first less the second at every chance, (S,), over all spreads."""
    one, other = first.low[:, None, -1:], second.low[None, :, -1:]  # estimates (D, 1, 1), (1, D, 1)
    below = _joined(one - first.low[:, None], second.high[None] - other, correlation)  # (D, D, S)
    above = _joined(first.high[:, None] - one, other - second.low[None], correlation)
    return (one - other - below).min((0, 1)), (one - other + above).max((0, 1))


def bootstrap_p_value(differences: numpy.ndarray) -> float:
    """Return the two-sided p-value of draws (R,) against 0, never below 2 / (R + 1)."""
    below, above = (differences <= 0).sum(), (differences >= 0).sum()
    return float(min(1.0, 2 * (1 + min(below, above)) / (1 + len(differences))))


def _joined(one: numpy.ndarray, other: numpy.ndarray, correlation: float) -> numpy.ndarray:
    """Return the standard error of a difference from those of its parts."""
    square = one**2 + other**2 - 2 * correlation * one * other
    roots: numpy.ndarray = numpy.sqrt(numpy.maximum(square, 0.0))
    return roots


def _correlation(first: Estimate, second: Estimate) -> float:
    one, other = (figure.resampled - figure.resampled.mean() for figure in (first, second))
    length = float(numpy.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / length if length else 0.0


def _chances(resamples: int, level: float) -> numpy.ndarray:
    """Return chances from the smallest that the resamples can show to 1, the level's among them."""
    spaced = numpy.geomspace(2 / (resamples + 1), 1, CHANCES)
    return numpy.unique(numpy.append(spaced, 1 - checked_level(level)))


def _level_index(figure: Estimate) -> int:
    """Return the index of a figure's level among its bounds."""
    assert figure.bounds is not None
    return int(numpy.abs(figure.bounds.chances - (1 - figure.level)).argmin())


def _smallest(chances: numpy.ndarray, outside: numpy.ndarray) -> float:
    """Return the smallest chance from which on 0 is outside, 1 if it never is."""
    inside = numpy.flatnonzero(~outside)
    first = inside.max() + 1 if len(inside) else 0
    return float(chances[min(first, len(chances) - 1)])


def _shown(
    errors: numpy.ndarray, direction: numpy.ndarray, chance: numpy.ndarray, norm: Norm
) -> numpy.ndarray:
    """Return what errors (E,) along a direction (F,) would show in each resample: (E, R)."""
    rows = max(1, RESIDUALS_AT_ONCE // len(direction))
    paths = errors[:, None] * direction  # (E, F)
    blocks = [chance[start : start + rows] for start in range(0, len(chance), rows)]
    shown = [numpy.stack([norm(block + path) for path in paths]) for block in blocks]
    return numpy.concatenate(shown, 1)


def _crossings(
    errors: numpy.ndarray, shown: numpy.ndarray, seen: float, shares: numpy.ndarray
) -> numpy.ndarray:
    """Return the errors, of (E,) showing sorted (E, R), that show less than is seen in shares."""
    rank = shares * (shown.shape[1] - 1)
    below, part = numpy.floor(rank).astype(int), rank % 1
    quantiles = (1 - part) * shown[:, below] + part * shown[:, numpy.ceil(rank).astype(int)]
    rising = numpy.maximum.accumulate(quantiles, 0)  # as they are but for the chance of the draws
    return numpy.array([numpy.interp(seen, column, errors) for column in rising.T])
