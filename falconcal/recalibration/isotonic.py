"""Isotonic regression: for each class the rising curve that fits best, then renormalised.

Zadrozny & Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates",
KDD 2002. One class against the rest: the pooled adjacent violators give the rising step function of
least squares; between its points it is read off linearly, beyond them it stays level. A class that
the validation labels lack gets probability 0, a row of zeros becomes uniform.
"""

from typing import ClassVar

import numpy
import scipy  # its parts are loaded when they are first used
import torch
from torch import Tensor

from falconcal.core.settings import settings
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import Calibrator, one_vs_rest, renormalised


@settings
class Isotonic(Calibrator):
    """Isotonic regression: one rising curve per class, from validation data.

    The predicted class may change. Needs hundreds of validation examples per class.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.Isotonic()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    parameter_names: ClassVar[tuple[str, ...]] = (
        "points",
        "values",
    )  # (C, K): curves, padded at the end

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        probs, truth = log_probs.exp().T, one_vs_rest(labels, log_probs.shape[1])  # (C, N)
        curves = [rising_curve(*pair, weights) for pair in zip(probs, truth, strict=True)]
        points, values = (_padded(list(rows)) for rows in zip(*curves, strict=True))
        return {"points": points, "values": values}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        points, values = parameters["points"], parameters["values"]
        return renormalised(interpolated(log_probs.exp().T, points, values).T)


def rising_curve(
    probs: Tensor, truth: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the corners of the isotonic fit of truth on probability: (N,), (N,) -> (K,), (K,)."""
    rounded = probs.numpy().round(15)  # what rounding alone tells apart is one point
    points, place = numpy.unique(rounded, return_inverse=True)
    each = numpy.ones(len(rounded)) if weights is None else weights.numpy()
    counts = numpy.bincount(place, weights=each)
    means = numpy.bincount(place, weights=each * truth.numpy()) / counts
    fit = scipy.optimize.isotonic_regression(means, weights=counts)
    values = torch.from_numpy(fit.x).clamp(0, 1)
    before = values.diff(prepend=values[:1] - 1) != 0
    after = values.diff(append=values[-1:] + 1) != 0
    corner = before | after  # inside a level stretch a point says nothing
    return torch.from_numpy(points)[corner], values[corner]


def interpolated(probs: Tensor, points: Tensor, values: Tensor) -> Tensor:
    """Read curves off, linear between points and level beyond: (C, N), (C, K), (C, K) -> (C, N)."""
    last = points.shape[1] - 1
    right = torch.searchsorted(points, probs.contiguous()).clamp(min(1, last), last)  # (C, N)
    left = (right - 1).clamp_min(0)  # a single point is its own neighbour
    low, high = points.gather(1, left), points.gather(1, right)
    share = ((probs - low) / torch.where(high > low, high - low, 1.0)).clamp(0, 1)
    return torch.lerp(values.gather(1, left), values.gather(1, right), share)


def _padded(rows: list[Tensor]) -> Tensor:
    """Stack rows of unequal length, their last entry repeated: (C, K)."""
    longest = max(len(row) for row in rows)
    return torch.stack([torch.cat([row, row[-1:].expand(longest - len(row))]) for row in rows])
