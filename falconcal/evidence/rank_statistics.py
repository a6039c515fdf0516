"""Resamples of what depends on the order of the examples: risk-coverage, outliers, smooth ECE."""

from collections.abc import Callable
from typing import Literal

import numpy
import torch

from falconcal.evidence.resampling import Cells, neighbours
from falconcal.metrics.calibration import SMOOTH_CELLS, smooth_cell, smooth_errors
from falconcal.metrics.metric import Resampling
from falconcal.metrics.predictions import TopPredictions

OutlierFigure = Literal["auroc", "aupr", "fpr_at_95"]


def risk_coverage_draws(
    answers: TopPredictions, resamples: int, generator: numpy.random.Generator
) -> numpy.ndarray:
    """Return the area under the risk-coverage curve of each resample, (R,).

    Copies of an example are ties, and ties share their errors. With W wrong among the k before
    them, c copies of mean error e add, over j = 1..c, (W + j e) / (k + j): that is
    c e + (W - e k) (H(k + c) - H(k)), H the harmonic numbers.
    """
    number = neighbours(-answers.confidence.double().numpy())  # the most confident first
    cells, outcome = int(number.max()) + 1, 2 * number + ~answers.correct.numpy()
    taken = _taken(outcome, 2 * cells, resamples, generator).reshape(resamples, cells, 2)
    copies, wrong = taken.sum(2), taken[:, :, 1]  # (R, K) each
    after = copies.cumsum(1)
    before, wrong_before = after - copies, wrong.cumsum(1) - wrong
    harmonic = numpy.append(0.0, numpy.cumsum(1 / numpy.arange(1, len(number) + 1)))
    step = harmonic[after.astype(numpy.int64)] - harmonic[before.astype(numpy.int64)]
    error = wrong / numpy.maximum(copies, 1)
    areas: numpy.ndarray = (wrong + (wrong_before - error * before) * step).sum(1) / len(number)
    return areas


def smooth_draws(
    answers: TopPredictions, resamples: int, generator: numpy.random.Generator
) -> numpy.ndarray:
    """Return the smooth ECE of each resample, (R,)."""
    cell = smooth_cell(answers.confidence).numpy()
    residual = (answers.correct.double() - answers.confidence.double()).numpy()
    cells = Cells.of(2 * cell + answers.correct.numpy(), numpy.stack([residual, cell], 1))
    sums = cells.taken(resamples, generator) * cells.means[:, 0]  # (R, K)
    histograms = numpy.zeros((resamples, SMOOTH_CELLS))
    numpy.add.at(histograms.T, cells.means[:, 1].astype(numpy.int64), sums.T)
    return smooth_errors(torch.from_numpy(histograms), len(residual)).numpy()


def outlier_draws(
    inside: numpy.ndarray,
    outside: numpy.ndarray,
    figure: OutlierFigure,
    resamples: int,
    generator: numpy.random.Generator,
) -> numpy.ndarray:
    """Return a figure of outlier detection of each resample of both samples' signals, (R,)."""
    number = neighbours(-numpy.concatenate([inside, outside]))  # the surest first
    cells = int(number.max()) + 1
    accepted, let_through = (
        _taken(numbers, cells, resamples, generator).cumsum(1)  # (R, K)
        for numbers in (number[: len(inside)], number[len(inside) :])
    )
    return OUTLIER_FIGURES[figure](accepted, let_through)


def drawn_outlier_figures(
    inside: numpy.ndarray,
    outside: numpy.ndarray,
    taken_inside: numpy.ndarray,
    taken_outside: numpy.ndarray,
) -> dict[OutlierFigure, numpy.ndarray]:
    """Return every figure of each resample, (R,), given how often each takes each example.

    With the same counts (R, N) and (R, K) for several models, their figures are paired.
    """
    number = neighbours(-numpy.concatenate([inside, outside]))  # the surest first
    cells = int(number.max()) + 1
    accepted = _gathered(number[: len(inside)], cells, taken_inside).cumsum(1)  # (R, cells)
    let_through = _gathered(number[len(inside) :], cells, taken_outside).cumsum(1)
    return {figure: function(accepted, let_through) for figure, function in OUTLIER_FIGURES.items()}


def _gathered(number: numpy.ndarray, cells: int, taken: numpy.ndarray) -> numpy.ndarray:
    """Return how often each cell is taken, from how often its members are: (R, N) -> (R, cells)."""
    filled, order = numpy.unique(number), numpy.argsort(number, kind="stable")
    starts = numpy.searchsorted(number[order], filled)
    counts = numpy.zeros((len(taken), cells))
    counts[:, filled] = numpy.add.reduceat(taken[:, order], starts, axis=1, dtype=numpy.int64)
    return counts


def _taken(
    number: numpy.ndarray, cells: int, resamples: int, generator: numpy.random.Generator
) -> numpy.ndarray:
    shares = numpy.bincount(number, minlength=cells) / len(number)
    return generator.multinomial(len(number), shares, size=resamples).astype(numpy.float64)


def _area(accepted: numpy.ndarray, let_through: numpy.ndarray) -> numpy.ndarray:
    """AUROC: how often an in-domain example is surer than an outlier, ties for a half."""
    outliers = numpy.diff(let_through, prepend=0, axis=1)
    surer = accepted - numpy.diff(accepted, prepend=0, axis=1) / 2
    areas: numpy.ndarray = (outliers * surer).sum(1) / (accepted[:, -1] * let_through[:, -1])
    return areas


def _precision(accepted: numpy.ndarray, let_through: numpy.ndarray) -> numpy.ndarray:
    """AUPR: the mean, over in-domain examples, of the precision where each is accepted."""
    gained = numpy.diff(accepted, prepend=0, axis=1)
    precision = accepted / numpy.maximum(accepted + let_through, 1)
    areas: numpy.ndarray = (gained * precision).sum(1) / accepted[:, -1]
    return areas


def _false_rate(accepted: numpy.ndarray, let_through: numpy.ndarray) -> numpy.ndarray:
    index = numpy.argmax(accepted >= 0.95 * accepted[:, -1:], axis=1)
    rates: numpy.ndarray = let_through[numpy.arange(len(index)), index] / let_through[:, -1]
    return rates


OUTLIER_FIGURES: dict[OutlierFigure, Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray]] = {
    "auroc": _area,
    "aupr": _precision,
    "fpr_at_95": _false_rate,
}
# by the word for resampling in the record of a metric
RANK_DRAWS: dict[
    Resampling, Callable[[TopPredictions, int, numpy.random.Generator], numpy.ndarray]
] = {
    "risk_coverage": risk_coverage_draws,
    "smoothed_gaps": smooth_draws,
}
