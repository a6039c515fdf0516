"""Calibration errors: how far confidence is from accuracy, with bins of several kinds or none.

The expected calibration error is the paper's equation 1 (Naeini et al., AAAI 2015); its bins are
those of ``falconcal.metrics.binning``. The debiased root-mean-square error is from Kumar, Liang &
Ma, "Verified uncertainty calibration", NeurIPS 2019; smooth ECE from Blasiok & Nakkiran, "Smooth
ECE: principled reliability diagrams via kernel smoothing", ICLR 2024.
"""

from dataclasses import dataclass

import numpy
import scipy  # its parts are loaded when they are first used
import torch
from torch import Tensor

from falconcal.metrics.binning import bin_index, check_bins
from falconcal.metrics.metric_inputs import labelled_answers, labelled_predictions, takes_arrays
from falconcal.metrics.predictions import Predictions, Scores, TopPredictions

BINS = 10
"""How many bins of confidence there are unless another number is given."""
RMS_BINS = 15
SMOOTH_CELLS = 2000  # of the grid on which smooth ECE is computed
SMOOTH_PRECISION = 1e-4


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """What a reliability diagram shows, one entry per bin, (M,); means of an empty bin are NaN.

    Example:
        >>> from falconcal.metrics import reliability_curve
        >>> curve = reliability_curve([[0.9, 0.1], [0.9, 0.1]], [0, 1], bins=2)
        >>> curve.shares.tolist(), [round(gap, 6) for gap in curve.gaps.tolist()]
        ([0.0, 1.0], [0.0, -0.4])
    """

    counts: Tensor
    """How many examples are in each bin."""
    confidence: Tensor
    """Their mean confidence."""
    accuracy: Tensor
    """The share of them that are right."""

    @property
    def gaps(self) -> Tensor:
        """Accuracy less confidence of each bin; 0 where it is empty."""
        return (self.accuracy - self.confidence).nan_to_num(0.0)

    @property
    def shares(self) -> Tensor:
        """The share of all examples that is in each bin."""
        return self.counts.double() / self.counts.sum()  # whole numbers would divide in float32


@takes_arrays
def reliability_curve(data: Predictions | Scores, bins: int = BINS) -> ReliabilityCurve:
    """Counts, confidence and accuracy in bins of equal width: what a reliability diagram shows.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).
        bins: How many bins of equal width; at least 1.

    Returns:
        The curve, with one entry per bin, empty ones included.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        >>> from falconcal.metrics import reliability_curve
        >>> curve = reliability_curve([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1], bins=2)
        >>> curve.counts.tolist(), [round(value, 6) for value in curve.accuracy.tolist()]
        ([0, 3], [nan, 0.666667])
    """
    answers = labelled_answers(data, "calibration error")
    return curve_from_bins(answers, bin_index(answers.confidence, bins), bins)


@takes_arrays
def equal_mass_curve(data: Predictions | Scores, bins: int = BINS) -> ReliabilityCurve:
    """Counts, confidence and accuracy in bins that hold equally many examples.

    Equal confidences stay in one bin, so where many are equal the bins differ in size.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).
        bins: How many bins; at least 1.

    Returns:
        The curve, with one entry per bin, empty ones included.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        >>> from falconcal.metrics import equal_mass_curve
        >>> rows = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]
        >>> curve = equal_mass_curve(rows, [0, 1, 0, 1], bins=2)
        >>> curve.counts.tolist(), curve.accuracy.tolist()
        ([2, 2], [0.5, 0.5])
    """
    answers = labelled_answers(data, "calibration error")
    return curve_from_bins(answers, equal_mass_index(answers.confidence, bins), bins)


@takes_arrays
def expected_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """Mean gap between accuracy and confidence over bins of equal width, weighted by examples.

    With n_m of N examples in bin m, ECE = sum_m n_m / N |accuracy_m - confidence_m| (Naeini et al.,
    AAAI 2015; the paper's equation 1). A sample of a calibrated model shows an error too: see
    ``falconcal.interval``.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).
        bins: How many bins of equal width; at least 1.

    Returns:
        The error, from 0 (best) to 1.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        Two predictions of confidence 0.9, one of them right, give |0.5 - 0.9| = 0.4.

        >>> from falconcal import expected_calibration_error
        >>> round(expected_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    curve = reliability_curve(data, bins)
    return float((curve.shares * curve.gaps.abs()).sum())


@takes_arrays
def adaptive_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """ECE in bins that hold equally many examples; equal confidences stay together.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).
        bins: How many bins; at least 1.

    Returns:
        The error, from 0 (best) to 1.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        In two bins of two examples each: |1 - 0.85| / 2 + |0.5 - 0.65| / 2 = 0.15.

        >>> from falconcal.metrics import adaptive_calibration_error
        >>> rows = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]
        >>> round(adaptive_calibration_error(rows, [0, 0, 0, 1], bins=2), 6)
        0.15
    """
    curve = equal_mass_curve(data, bins)
    return float((curve.shares * curve.gaps.abs()).sum())


@takes_arrays
def maximum_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """Largest gap between accuracy and confidence of any bin that holds an example.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).
        bins: How many bins of equal width; at least 1.

    Returns:
        The gap, from 0 (best) to 1.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        The bin of 0.9 has a gap of |0.5 - 0.9| = 0.4, that of 0.6 one of |1 - 0.6| = 0.4 too; that
        of 0.75, wrong, has 0.75.

        >>> from falconcal.metrics import maximum_calibration_error
        >>> rows = [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.75, 0.25]]
        >>> maximum_calibration_error(rows, [0, 1, 0, 1])
        0.75
    """
    return float(reliability_curve(data, bins).gaps.abs().max())


@takes_arrays
def signed_gap(data: Predictions | Scores) -> float:
    """Mean confidence less accuracy: above 0 too sure, below 0 too timid.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).

    Returns:
        The gap, from -1 to 1; 0 is best.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        Two predictions of confidence 0.9, one of them right, are too sure by 0.9 - 0.5 = 0.4.

        >>> from falconcal.metrics import signed_gap
        >>> round(signed_gap([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    answers = labelled_answers(data, "signed gap")
    return float(answers.confidence.double().mean() - answers.correct.double().mean())


@takes_arrays
def rms_calibration_error(
    data: Predictions | Scores, bins: int = RMS_BINS, *, debiased: bool = True
) -> float:
    """Root-mean-square gap in 15 bins of equal mass, less what chance alone adds.

    A bin of n examples with accuracy a misses its mean by a (1 - a) / (n - 1) in expectation even
    when it is calibrated. That is subtracted from the square of its gap, and a negative rest counts
    as 0 (Kumar, Liang & Ma, NeurIPS 2019).

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).
        bins: How many bins; at least 1.
        debiased: Whether what chance adds is subtracted.

    Returns:
        The error, from 0 (best) to 1.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        One bin of confidence 0.9 with one of two right: 0.4 ** 2 - 0.25 is below 0, so the error
        may be chance alone.

        >>> from falconcal.metrics import rms_calibration_error
        >>> rows, labels = [[0.9, 0.1], [0.9, 0.1]], [0, 1]
        >>> rms_calibration_error(rows, labels, bins=1)
        0.0
        >>> rms_calibration_error(rows, labels, bins=1, debiased=False)
        0.4
    """
    curve = equal_mass_curve(data, bins)
    squares = curve.gaps.square()
    if debiased:
        chance = curve.accuracy * (1 - curve.accuracy) / (curve.counts - 1)
        squares = squares - torch.where(curve.counts > 1, chance, 0.0)
    return float((curve.shares * squares).sum().clamp_min(0).sqrt())


@takes_arrays
def classwise_calibration_error(data: Predictions | Scores, bins: int = BINS) -> float:
    """Mean over classes of the ECE of each class's own probability.

    For class k the confidence of an example is p_k, and it is right if k is its true class. It
    needs the probabilities of all classes, so scores are refused.

    Args:
        data: Predictions, or probabilities (N, C) followed by labels (N,).
        bins: How many bins of equal width; at least 1.

    Returns:
        The error, from 0 (best) to 1.

    Raises:
        UserError: If there are no examples, one has no true class (a label of -1), or only scores
            are given.

    Example:
        Both classes have probabilities 0.9 and 0.1 in turn, and a gap of 0.1 in each of two bins.

        >>> from falconcal.metrics import classwise_calibration_error
        >>> round(classwise_calibration_error([[0.9, 0.1], [0.1, 0.9]], [0, 1]), 6)
        0.1
    """
    curves = classwise_statistics(labelled_predictions(data, "class-wise ECE"), bins)
    return classwise_ece_from_counts(curves)


@takes_arrays
def smooth_calibration_error(data: Predictions | Scores) -> float:
    """Calibration error without bins, smoothed by a kernel whose width is the error itself.

    The residuals, correct less confidence, are smoothed along the confidence by a Gaussian of width
    s, reflected at 0 and 1; the error is the s at which the mean absolute value of the smoothed
    residuals is s (Blasiok & Nakkiran, ICLR 2024).

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).

    Returns:
        The error, from 0 (best) to 1, found to a precision of 0.0001.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        All residuals are -0.4 on average at one confidence, which no kernel changes.

        >>> from falconcal.metrics import smooth_calibration_error
        >>> round(smooth_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 3)
        0.4
    """
    answers = labelled_answers(data, "smooth ECE")
    return smooth_ece_from_histogram(residual_histogram(answers), len(answers))


def curve_from_bins(answers: TopPredictions, index: Tensor, bins: int) -> ReliabilityCurve:
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


def classwise_ece_from_counts(statistics: Tensor) -> float:
    """Return the class-wise ECE from the statistics of ``classwise_statistics``."""
    counts, probability, hits = statistics.unbind(2)  # (C, M) each
    # |hits/n - probability/n| * n/N, summed over bins, needs no division by an empty bin
    return float(((hits - probability).abs().sum(1) / counts.sum(1)).mean())


def residual_histogram(answers: TopPredictions) -> Tensor:
    """Return the sum of (correct - confidence) in cells of confidence, what smooth ECE needs."""
    residual = answers.correct.double() - answers.confidence.double()
    return torch.bincount(smooth_cell(answers.confidence), residual, SMOOTH_CELLS)


def smooth_cell(confidence: Tensor) -> Tensor:
    """Return the cell of each confidence: (N,) -> (N,)."""
    return bin_index(confidence, SMOOTH_CELLS)


def smooth_ece_from_histogram(histogram: Tensor, examples: int) -> float:
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
