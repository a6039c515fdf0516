"""Calibration errors as norms of residuals, and an interval that allows for their bias.

The residual of a bin is the sum of (correct - confidence) over its examples, divided by the number
of all examples. Expected, adaptive, maximum and root-mean-square calibration error are norms of the
vector of residuals. What is wanted is the norm of the true residuals; what is seen is the norm of
truth plus chance, which is larger. A plain bootstrap adds chance a second time.

The interval inverts a test instead (Carpenter, JRSS B 1999): a true error is kept if what was seen
lies among the middle of what it would show. What it would show depends on how the error is spread
over the bins, which is not known; three spreads are tried, and the interval holds what any of them
keeps: that of the sample, that of chance (the bias is smallest where all bins share the error), and
that of the bins beyond two standard errors (the bias is largest where few bins bear it).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import scipy  # its parts are loaded when they are first used
import torch
from torch import Tensor

from falconcal.evidence.resampling import Cells, clustered
from falconcal.metrics.binning import bin_index
from falconcal.metrics.calibration import BINS, RMS_BINS, equal_mass_index
from falconcal.metrics.metric import Resampling
from falconcal.metrics.predictions import Predictions, TopPredictions

CONFIDENCE_STEPS = 200  # steps of confidence; inside one it varies far less than right and wrong do
CLEAR = 2.0  # standard errors beyond which a bin bears an error of its own
Norm = Callable[[numpy.ndarray], numpy.ndarray]  # residuals (..., M) -> (...)


@dataclass(frozen=True)
class BinnedError:
    """An error of calibration: its bins, and its norm of their residuals."""

    index: Callable[[Tensor, int], Tensor]  # confidence (N,), bins -> (N,)
    bins: int
    norm: Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray]  # residuals, shares (M,)

    def draws(
        self,
        answers: TopPredictions,
        resamples: int,
        generator: numpy.random.Generator,
        clusters: numpy.ndarray | None = None,
    ) -> numpy.ndarray:
        """Return the metric of each resample, (R,), in the bins of the sample."""
        residuals = self.residuals(answers)
        return residuals.norm(residuals.draws(resamples, generator, clusters))

    def residuals(self, answers: TopPredictions) -> "Residuals":
        index = self.index(answers.confidence, self.bins).numpy()
        shares = numpy.bincount(index, minlength=self.bins) / len(index)
        return Residuals(answers, index, self.bins, lambda values: self.norm(values, shares))


@dataclass(frozen=True, eq=False)
class Residuals:
    """The answers of a sample in their bins."""

    answers: TopPredictions
    index: numpy.ndarray  # (N,)
    bins: int
    norm: Norm

    @property
    def each(self) -> numpy.ndarray:
        """Correct less confidence: (N,)."""
        answers = self.answers
        values: numpy.ndarray = (answers.correct.double() - answers.confidence.double()).numpy()
        return values

    @property
    def cell(self) -> numpy.ndarray:
        """Number cells of the same bin, the same outcome and nearly the same confidence: (N,)."""
        level = (self.answers.confidence.double().numpy() * CONFIDENCE_STEPS).astype(numpy.int64)
        outcome = 2 * self.index + self.answers.correct.numpy()
        numbers: numpy.ndarray = outcome * (CONFIDENCE_STEPS + 1) + level
        return numbers

    def observed(self) -> numpy.ndarray:
        """Return the residual of each bin: (M,)."""
        return numpy.bincount(self.index, self.each, self.bins) / len(self.index)

    def draws(
        self,
        resamples: int,
        generator: numpy.random.Generator,
        clusters: numpy.ndarray | None = None,
    ) -> numpy.ndarray:
        """Return the residuals of each resample: (R, M)."""
        if clusters is None:
            cells = Cells.of(self.cell, self.features())
        else:
            cells = clustered(self.features(), clusters)
        sums = cells.sums(resamples, generator)
        residuals: numpy.ndarray = sums[:, 1:] / sums[:, :1]
        return residuals

    def features(self) -> numpy.ndarray:
        """Return one, and the residual in the column of its bin: (N, 1 + M)."""
        features = numpy.zeros((len(self.index), 1 + self.bins))
        features[:, 0] = 1
        features[numpy.arange(len(self.index)), 1 + self.index] = self.each
        return features


def inverted_test_interval(
    observed: numpy.ndarray, draws: numpy.ndarray, level: float, norm: Norm
) -> tuple[float, float]:
    """Return the bounds of a norm of residuals: (M,), resamples (R, M) -> low, high."""
    chance = draws - observed  # (R, M)
    lows, highs = [], []
    for direction in spreads(observed, chance, norm):
        lows.append(_crossing(observed, direction, chance, (1 + level) / 2, norm))
        highs.append(_crossing(observed, direction, chance, (1 - level) / 2, norm))
    return (min(lows), max(highs)) if lows else (0.0, 0.0)


def spreads(observed: numpy.ndarray, chance: numpy.ndarray, norm: Norm) -> list[numpy.ndarray]:
    """Return how an error may be spread over the bins, (M,), each of norm 1."""
    spread = chance.std(0)  # (M,)
    directions = (observed, spread, _clear(observed, spread))
    lengths = [float(norm(direction)) for direction in directions]
    return [one / length for one, length in zip(directions, lengths, strict=True) if length > 0]


def _clear(observed: numpy.ndarray, spread: numpy.ndarray) -> numpy.ndarray:
    """Keep the bins beyond two standard errors, or the one that comes nearest to it."""
    distance = numpy.abs(observed) / numpy.where(spread > 0, spread, numpy.inf)
    return numpy.where(distance >= min(CLEAR, distance.max()), observed, 0.0)


def _crossing(
    observed: numpy.ndarray,
    direction: numpy.ndarray,
    chance: numpy.ndarray,
    share: float,
    norm: Norm,
) -> float:
    """Return the true error, along a direction, that shows less than is seen in a share of cases.

    Zero if even no error at all shows more than is seen.
    """
    seen = float(norm(observed))

    def excess(error: float) -> float:
        return float(numpy.quantile(norm(error * direction + chance), share)) - seen

    if excess(0.0) >= 0:
        return 0.0
    most = 2 * seen + float(norm(chance).max())  # shows at least its norm less that of chance
    return float(scipy.optimize.brentq(excess, 0.0, most, xtol=1e-6))


def classwise_residuals(
    predictions: Predictions, resamples: int, generator: numpy.random.Generator
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the residuals of every class's bins, (C M,), and those of resamples, (R, C M).

    All classes share the examples that are taken, so no cells are alike: one resample at a time.
    """
    classes, examples = predictions.classes, len(predictions)
    probs = predictions.probs.double().cpu()  # (N, C)
    truth = torch.nn.functional.one_hot(predictions.labels.cpu(), classes)  # (N, C)
    index = (bin_index(probs, BINS) + BINS * torch.arange(classes)).numpy().ravel()
    each = (truth - probs).numpy()

    def summed(counts: numpy.ndarray) -> numpy.ndarray:
        weights = (each * counts[:, None]).ravel()
        return numpy.bincount(index, weights, classes * BINS) / examples

    even = numpy.full(examples, 1 / examples)
    drawn = [summed(generator.multinomial(examples, even)) for _ in range(resamples)]
    return summed(numpy.ones(examples)), numpy.stack(drawn)


def l1_norm(residuals: numpy.ndarray, _: numpy.ndarray) -> numpy.ndarray:
    """Sum of |residual|: the expected calibration error."""
    errors: numpy.ndarray = numpy.abs(residuals).sum(-1)
    return errors


def max_norm(residuals: numpy.ndarray, shares: numpy.ndarray) -> numpy.ndarray:
    """The largest |residual| of a bin over its share of the examples."""
    filled = shares > 0
    errors: numpy.ndarray = (numpy.abs(residuals[..., filled]) / shares[filled]).max(-1)
    return errors


def rms_norm(residuals: numpy.ndarray, shares: numpy.ndarray) -> numpy.ndarray:
    """Root of the mean square of a bin's gap, before what chance adds is taken off."""
    filled = shares > 0
    errors: numpy.ndarray = numpy.sqrt((residuals[..., filled] ** 2 / shares[filled]).sum(-1))
    return errors


# by the word for resampling in the record of a metric
BINNED_ERRORS: dict[Resampling, BinnedError] = {
    "bin_gaps": BinnedError(bin_index, BINS, l1_norm),
    "equal_mass_gaps": BinnedError(equal_mass_index, BINS, l1_norm),
    "largest_gap": BinnedError(bin_index, BINS, max_norm),
    "root_mean_square_gap": BinnedError(equal_mass_index, RMS_BINS, rms_norm),
}
