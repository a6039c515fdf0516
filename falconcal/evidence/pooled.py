"""Intervals and differences of figures that pool the levels of shifts, resampling the examples.

An image at all levels of all shifts is one example: a resample takes the whole of it or nothing.
Every level then holds equally many examples in every resample, so all that an ECE needs of a level
is, for each bin, the sum of correct less confidence: counts times features gives it for all
resamples at once. Every pooled error is a sum of sizes of weighted gaps, and so is its mean over
shifts or seeds, of all their gaps together, as long as all were drawn with the same counts; over
seeds the interval is one over examples, the trained models taken as they are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy
import torch

from falconcal.core.registry import check_name
from falconcal.errors import UserError, described, unknown_name_error
from falconcal.evidence.differences import (
    Difference,
    Estimate,
    difference_of,
    error_figure,
    interval_of,
)
from falconcal.evidence.intervals import Interval
from falconcal.evidence.resampling import example_values
from falconcal.metrics import BINS, METRICS
from falconcal.metrics.binning import bin_index
from falconcal.metrics.metric_inputs import labelled, scores_of
from falconcal.metrics.over_levels import LevelScores
from falconcal.metrics.predictions import Scores

RESAMPLES_AT_ONCE = 500  # bounds the memory: counts are multiplied as float32, kept as bytes


@dataclass(frozen=True, eq=False)
class Draws:
    """What a figure is made of, and what that is in each resample of the examples.

    A mean is the sum of its parts; an error of calibration the sum of their sizes.
    """

    observed: numpy.ndarray  # (F,)
    drawn: numpy.ndarray  # (R, F) float32: 9,000 columns for ten seeds, nine shifts, ten levels
    error: bool


def pooled_interval(
    shifts: Sequence[LevelScores],
    figure: str,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Return the mean over shifts of a pooled figure, with a bootstrap interval over examples.

    An example is drawn with all its levels and shifts.

    Args:
        shifts: One list per shift with the scores of its levels, the clean one first; all of the
            same examples in the same order. The shifts of several seeds, listed together, give the
            mean over seeds.
        figure: ``"micro_ece"``, ``"macro_ece"``, ``"ece_area"`` or ``"last_level_confidence"``.
        level: The level of confidence, above 0 and below 1.
        resamples: How many bootstrap resamples are drawn, at least 2.
        seed: Of the resamples; the same seed gives the same interval.

    Returns:
        The value with its bounds.

    Raises:
        UsageError: If the figure has another name.
        UserError: If a shift has no level, or the examples differ between levels.

    Example:
        >>> from falconcal import Predictions
        >>> from falconcal.evidence import pooled_interval
        >>> clean = Predictions.from_probabilities([[0.75, 0.25]] * 8, [0] * 8)
        >>> shifted = Predictions.from_probabilities([[0.5, 0.5]] * 8, [0] * 8)
        >>> pooled_interval([[clean, shifted]], "last_level_confidence")
        Interval(value=0.5, low=0.5, high=0.5, level=0.95)
    """
    counts = drawn_counts(_examples(shifts), resamples, seed)
    return interval_of(figure_of(_mean_over_shifts(shifts, figure, counts), level))


def pooled_difference(
    first: Sequence[LevelScores],
    second: Sequence[LevelScores],
    figure: str,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Difference:
    """Return the first's pooled figure less the second's, by a paired bootstrap over examples.

    Args:
        first: The shifts of the first method: one list per shift with the scores of its levels.
        second: The same of the second method, on the same examples.
        figure: ``"micro_ece"``, ``"macro_ece"``, ``"ece_area"`` or ``"last_level_confidence"``.
        level: The level of confidence, above 0 and below 1.
        resamples: How many bootstrap resamples are drawn, at least 2.
        seed: Of the resamples; the same seed gives the same interval.

    Returns:
        The difference with its bounds, p-value and effect.

    Raises:
        UsageError: If the figure has another name.
        UserError: If a shift has no level, or the examples differ between levels or methods.

    Example:
        >>> from falconcal import Predictions
        >>> from falconcal.evidence import pooled_difference
        >>> first = [Predictions.from_probabilities([[0.75, 0.25]] * 8, [0] * 8)] * 2
        >>> second = [Predictions.from_probabilities([[0.5, 0.5]] * 8, [0] * 8)] * 2
        >>> found = pooled_difference([first], [second], "last_level_confidence")
        >>> found.value, found.effect
        (0.25, 0.5)
    """
    counts = drawn_counts(_examples([*first, *second]), resamples, seed)
    one, other = (_mean_over_shifts(shifts, figure, counts) for shifts in (first, second))
    return difference_of(figure_of(one, level), figure_of(other, level))


def drawn_counts(examples: int, resamples: int, seed: int) -> numpy.ndarray:
    """Return how often each resample takes each example, (R, N)."""
    if examples < 1 or resamples < 2:
        raise UserError(
            f"expected at least 1 example and at least 2 resamples, got {examples} and {resamples}."
        )
    generator = numpy.random.default_rng(seed)
    counts = numpy.empty((resamples, examples), numpy.uint8)  # none of N is ever drawn 256 times
    for row in counts:
        row[:] = numpy.bincount(generator.integers(examples, size=examples), minlength=examples)
    return counts


def level_draws(scores: Scores, metric: str, counts: numpy.ndarray) -> Draws:
    """Return the draws of a metric that is a mean (accuracy, confidence ...) of one level."""
    values = example_values(METRICS[metric], scores)[:, None]  # (N, 1)
    return Draws(*_sums(values / len(values), counts), error=False)


def shift_draws(
    levels: LevelScores,
    counts: numpy.ndarray,
    others: numpy.ndarray | Sequence[numpy.ndarray] | None = None,
) -> dict[str, Draws]:
    """Return the draws of every pooled figure of one shift, its levels the clean one first.

    ``others`` are the counts of the levels above the clean one where these are of other examples,
    which are then drawn for themselves; a list of counts where every level has its own.
    """
    drawn = [(levels, counts)]
    if isinstance(others, numpy.ndarray):
        drawn = [(levels[:1], counts), (levels[1:], others)]
    elif others is not None:
        own = zip(levels[1:], others, strict=True)
        drawn = [(levels[:1], counts), *(([level], taken) for level, taken in own)]
    groups = [(_same_examples(part, taken.shape[1]), taken) for part, taken in drawn]
    sizes = numpy.array([len(level) for parts, _ in groups for level in parts], numpy.float32)
    gaps, confidences = zip(*(_gaps_and_confidence(*group) for group in groups), strict=True)
    once, taken = (numpy.concatenate(parts, 1) for parts in zip(*gaps, strict=True))  # (R, L, M)
    found = {
        name: Draws(weighted(once, sizes)[0], weighted(taken, sizes), error=True)
        for name, weighted in GAP_FIGURES.items()
    }
    return {**found, "last_level_confidence": confidences[-1]}


def _gaps_and_confidence(
    levels: Sequence[Scores], counts: numpy.ndarray
) -> tuple[tuple[numpy.ndarray, numpy.ndarray], Draws]:
    """Return the gaps of every level and bin as they are, (1, L, M), and in resamples.

    With them, by the same product, the confidence of the last level: counts become floats for each
    product, which takes longer than one column more.
    """
    values = example_values(METRICS["confidence"], levels[-1])
    sure = values[:, None] / len(values)  # (N, 1)
    once, taken = _sums(numpy.concatenate([gap_features(levels), sure], 1), counts)
    shape = (-1, len(levels), BINS)
    gaps = once[:-1].reshape(shape), taken[:, :-1].reshape(shape)
    return gaps, Draws(once[-1:], taken[:, -1:], error=False)


def gap_features(levels: Sequence[Scores]) -> numpy.ndarray:
    """Return correct less confidence over N, in the column of its level and bin: (N, L * M)."""
    examples = len(levels[0])
    features = numpy.zeros((examples, len(levels) * BINS))
    for number, scores in enumerate(levels):
        columns = (bin_index(scores.confidence, BINS) + number * BINS).numpy()  # (N,)
        gaps = scores.correct.double() - scores.confidence.double()
        features[numpy.arange(examples), columns] = gaps.numpy() / examples
    return features


def mean_of_draws(parts: Iterable[Draws]) -> Draws:
    """Return the mean of figures of one kind that were drawn with the same counts."""
    listed = list(parts)
    observed = numpy.concatenate([part.observed for part in listed]) / len(listed)
    drawn = numpy.concatenate([part.drawn for part in listed], 1)
    drawn /= len(listed)
    return Draws(observed, drawn, listed[0].error)


def figure_of(draws: Draws, level: float = 0.95) -> Estimate:
    """Return a figure from what it is made of; errors of calibration with bounds of the truth."""
    if not draws.error:
        total = draws.drawn.sum(1, dtype=numpy.float64)
        return Estimate(float(draws.observed.sum()), total, level=level)
    filled = numpy.flatnonzero(draws.drawn.any(0))  # where a model is sure most bins are empty
    filled = filled if len(filled) else numpy.array([0])  # without any gap there is one of 0
    observed = draws.observed[filled].astype(draws.drawn.dtype)
    value = float(_size(draws.observed))
    return error_figure(value, observed, draws.drawn[:, filled], _size, level)


def _size(gaps: numpy.ndarray) -> numpy.ndarray:  # (..., F) -> (...)
    sizes: numpy.ndarray = numpy.abs(gaps).sum(-1)
    return sizes


# each takes gaps (R, L, M) and how many examples a level has, (L,)


def _micro(gaps: numpy.ndarray, sizes: numpy.ndarray) -> numpy.ndarray:  # -> (R, M)
    """Weigh the levels by their examples, as one pool of them does."""
    means: numpy.ndarray = numpy.average(gaps, 1, sizes) if numpy.ptp(sizes) else gaps.mean(1)
    return means.astype(gaps.dtype, copy=False)


def _macro(gaps: numpy.ndarray, sizes: numpy.ndarray) -> numpy.ndarray:  # -> (R, L * M)
    weighted: numpy.ndarray = gaps / len(sizes)
    return weighted.reshape(len(gaps), -1)


def _area(gaps: numpy.ndarray, sizes: numpy.ndarray) -> numpy.ndarray:  # -> (R, L * M)
    """Weigh the levels as the trapezoid rule does."""
    levels = len(sizes)
    weights = numpy.trapezoid(numpy.eye(levels, dtype=gaps.dtype), dx=1 / max(1, levels - 1))
    weighted: numpy.ndarray = gaps * weights[:, None]
    return weighted.reshape(len(gaps), -1)


GAP_FIGURES: dict[str, Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray]] = {
    "micro_ece": _micro,
    "macro_ece": _macro,
    "ece_area": _area,
}


def _mean_over_shifts(shifts: Sequence[LevelScores], figure: str, counts: numpy.ndarray) -> Draws:
    known = [*GAP_FIGURES, "last_level_confidence"]
    check_name("pooled figure", figure)
    if figure not in known:
        raise unknown_name_error("pooled figure", figure, known)
    return mean_of_draws(shift_draws(levels, counts)[figure] for levels in shifts)


def _sums(features: numpy.ndarray, counts: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the sums of features (N, F) over all examples, (F,), and in resamples, (R, F)."""
    narrow = features.astype(numpy.float32)  # seven digits of a sum are plenty for a draw
    blocks = numpy.split(counts, range(RESAMPLES_AT_ONCE, len(counts), RESAMPLES_AT_ONCE))
    taken = [block.astype(numpy.float32) @ narrow for block in blocks]
    return features.sum(0), numpy.concatenate(taken)


def _examples(shifts: Sequence[LevelScores]) -> int:
    listed = isinstance(shifts, list | tuple)
    if not listed or not all(isinstance(levels, list | tuple) for levels in shifts):
        raise UserError(
            "expected a list of shifts, each a list with the scores of its levels, got "
            f"{described(shifts)}."
        )
    if not shifts or not all(shifts):
        raise UserError("expected at least one shift with at least one level, got none.")
    clean = _same_examples([levels[0] for levels in shifts], len(scores_of(shifts[0][0])))
    return len(clean[0])


def _same_examples(levels: LevelScores, examples: int) -> list[Scores]:
    """Return the levels' scores; all must be of the same examples in the same order."""
    parts = [labelled(level, "a pooled figure") for level in levels]
    for part in parts:
        if len(part) != examples or not torch.equal(part.label, parts[0].label):
            raise UserError(
                "expected the same examples at every level, for all shifts and methods, got "
                "different labels."
            )
    return parts
