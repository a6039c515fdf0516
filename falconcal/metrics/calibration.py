"""Calibration: how far confidence is from accuracy, by bins of several kinds and by none.

The expected calibration error is the paper's equation 1 (Naeini et al., AAAI 2015); its bins are
those of ``falconcal.bins``. The debiased root-mean-square error is from Kumar, Liang & Ma,
"Verified uncertainty calibration", NeurIPS 2019; smooth ECE from Blasiok & Nakkiran, "Smooth ECE:
principled reliability diagrams via kernel smoothing", ICLR 2024.
"""

from dataclasses import dataclass

import numpy
import scipy.fft
import torch
from torch import Tensor

from falconcal.bins import bin_index, check_bins
from falconcal.metrics.scored import labelled_answers, labelled_predictions, takes_arrays
from falconcal.predictions import Answers, Predictions, Scores

BINS = 10
RMS_BINS = 15
SMOOTH_CELLS = 2000  # of the grid that smooth ECE lives on
SMOOTH_PRECISION = 1e-4


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Counts, mean confidence and accuracy of each bin; the two means of an empty bin are NaN."""

    counts: Tensor  # (M,)
    confidence: Tensor  # (M,)
    accuracy: Tensor  # (M,)

    @property
    def gaps(self) -> Tensor:
        """Accuracy less confidence; 0 where a bin is empty."""
        return (self.accuracy - self.confidence).nan_to_num(0.0)

    @property
    def shares(self) -> Tensor:
        """Share of the examples in each bin."""
        return self.counts.double() / self.counts.sum()  # whole numbers would divide in float32


@takes_arrays
def reliability_curve(data: Predictions | Scores, bins: int = BINS) -> ReliabilityCurve:
    """Return what a reliability diagram shows, in bins of equal width."""
    answers = labelled_answers(data, "calibration error")
    return curve_of(answers, bin_index(answers.confidence, bins), bins)


@takes_arrays
def equal_mass_curve(data: Predictions | Scores, bins: int = BINS) -> ReliabilityCurve:
    """Return the same in bins that hold equally many examples; equal confidences stay together."""
    answers = labelled_answers(data, "calibration error")
    return curve_of(answers, equal_mass_index(answers.confidence, bins), bins)


@takes_arrays
def expected_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """ECE: mean over bins, weighted by their examples, of |accuracy - confidence|."""
    curve = reliability_curve(data, bins)
    return float((curve.shares * curve.gaps.abs()).sum())


@takes_arrays
def adaptive_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """ECE in bins that hold equally many examples."""
    curve = equal_mass_curve(data, bins)
    return float((curve.shares * curve.gaps.abs()).sum())


@takes_arrays
def maximum_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """Largest |accuracy - confidence| of any bin that holds an example."""
    return float(reliability_curve(data, bins).gaps.abs().max())


@takes_arrays
def signed_gap(data: Predictions | Scores) -> float:
    """Mean confidence less accuracy: above 0 overconfident, below 0 underconfident."""
    answers = labelled_answers(data, "signed gap")
    return float(answers.confidence.double().mean() - answers.correct.double().mean())


@takes_arrays
def rms_calibration_error(
    data: Predictions | Scores, bins: int = RMS_BINS, *, debiased: bool = True
) -> float:
    """Root-mean-square calibration error in bins of equal mass, less what chance alone adds.

    A bin of n examples with accuracy a misses its mean by a (1 - a) / (n - 1) in expectation even
    when it is calibrated; that is subtracted, and a negative rest counts as 0.
    """
    curve = equal_mass_curve(data, bins)
    squares = curve.gaps.square()
    if debiased:
        chance = curve.accuracy * (1 - curve.accuracy) / (curve.counts - 1)
        squares = squares - torch.where(curve.counts > 1, chance, 0.0)
    return float((curve.shares * squares).sum().clamp_min(0).sqrt())


@takes_arrays
def classwise_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """Mean over classes of the ECE of each class's own probability."""
    curves = classwise_statistics(labelled_predictions(data, "class-wise ECE"), bins)
    return classwise_from(curves)


@takes_arrays
def smooth_calibration_error(data: Predictions | Scores) -> float:
    """Smooth ECE: no bins, a kernel whose width is the error itself."""
    answers = labelled_answers(data, "smooth ECE")
    return smooth_from(residual_histogram(answers), len(answers))


def curve_of(answers: Answers, index: Tensor, bins: int) -> ReliabilityCurve:
    """Return the curve of answers that fall into the bins of ``index`` (N,)."""
    counts = torch.bincount(index, minlength=bins)  # (M,)
    confidence = torch.bincount(index, answers.confidence.double(), bins) / counts
    accuracy = torch.bincount(index, answers.correct.double(), bins) / counts
    return ReliabilityCurve(counts, confidence, accuracy)


def equal_mass_index(confidence: Tensor, bins: int) -> Tensor:
    """Return the bin of each confidence, (N,) -> (N,), edges at the quantiles, right-closed."""
    check_bins(bins)
    ordered = confidence.double().sort().values  # (N,)
    last = torch.arange(1, bins) * len(ordered) // bins - 1  # the last example of each bin
    edges = ordered[last[last >= 0]]
    return torch.searchsorted(edges, confidence.double())


def classwise_statistics(data: Predictions, bins: int) -> Tensor:
    """Return counts, summed probability and hits of each class's bins: (C, M, 3)."""
    probs = data.probs.double().cpu()  # (N, C)
    classes = probs.shape[1]
    truth = torch.nn.functional.one_hot(data.labels.cpu(), classes).double()  # (N, C)
    index = bin_index(probs, bins) + bins * torch.arange(classes)  # (N, C)
    columns = (torch.ones_like(probs), probs, truth)
    sums = [torch.bincount(index.flatten(), column.flatten(), classes * bins) for column in columns]
    return torch.stack(sums, 1).reshape(classes, bins, 3)


def classwise_from(statistics: Tensor) -> float:
    """Return the class-wise ECE from the statistics of ``classwise_statistics``."""
    counts, probability, hits = statistics.unbind(2)  # (C, M) each
    # |hits/n - probability/n| * n/N, summed over bins, needs no division by an empty bin
    return float(((hits - probability).abs().sum(1) / counts.sum(1)).mean())


def residual_histogram(answers: Answers) -> Tensor:
    """Return the sum of (correct - confidence) in cells of confidence, what smooth ECE needs."""
    residual = answers.correct.double() - answers.confidence.double()
    return torch.bincount(smooth_cell(answers.confidence), residual, SMOOTH_CELLS)


def smooth_cell(confidence: Tensor) -> Tensor:
    """Return the cell of each confidence: (N,) -> (N,)."""
    return bin_index(confidence, SMOOTH_CELLS)


def smooth_from(histogram: Tensor, examples: int) -> float:
    """Return the smooth ECE of one histogram of residuals, (cells,)."""
    return float(smooth_errors(histogram[None], examples))


def smooth_errors(histograms: Tensor, examples: int) -> Tensor:
    """Return the width at which each smoothed error equals the width: (R, cells) -> (R,)."""
    waves = scipy.fft.dct(histograms.numpy() / examples)
    low, high = numpy.zeros(len(waves)), numpy.ones(len(waves))
    while (high - low).max() > SMOOTH_PRECISION:
        middle = (low + high) / 2
        below = _smoothed(waves, middle) < middle
        high, low = numpy.where(below, middle, high), numpy.where(below, low, middle)
    return torch.from_numpy(_smoothed(waves, high))


def _smoothed(waves: numpy.ndarray, width: numpy.ndarray) -> numpy.ndarray:
    """Integrate the absolute residual after Gaussians of these widths, reflected at 0 and 1.

    The cosine transform's basis is reflected at both ends, so a Gaussian damps each wave alone.
    """
    number = numpy.arange(waves.shape[1])
    damping = numpy.exp(-((numpy.pi * width[:, None] * number) ** 2) / 2)  # (R, cells)
    errors: numpy.ndarray = numpy.abs(scipy.fft.idct(waves * damping)).sum(1)
    return errors
