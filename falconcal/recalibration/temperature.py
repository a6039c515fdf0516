"""Temperature scaling: one number that sharpens or softens every prediction.

Guo, Pleiss, Sun & Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, section 4.2.
``softmax(z / T)`` with the T > 0 of the lowest validation likelihood loss. The loss is convex in
1/T, so its slope has one root: a bracketed solver on log T finds it to the last digits, where the
few gradient steps in common use stop short. The predicted class never changes.

Where the model makes no mistake the likelihood has no best T but 0. There our T is the one whose
mean confidence after n right answers of n is (n + 1) / (n + 2), and a warning says so.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import scipy  # its parts are loaded when they are first used
import torch
from torch import Tensor

from falconcal.core.settings import settings
from falconcal.errors import CalibrationWarning
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import Calibrator
from falconcal.recalibration.fit_losses import weighted_mean

SOUGHT_FROM, SOUGHT_TO = 1e-2, 1e2  # where the temperature is sought at first
EXTRA_DECADES = 10  # times ten lower and higher, where a root is known to lie beyond


@settings
class Temperature(Calibrator):
    """Temperature scaling: ``softmax(z / T)``, T from validation data.

    The predicted class never changes. Warns (``CalibrationWarning``) where the data do not
    determine T.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.Temperature()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("temperature",)

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        temperature = best_temperature(log_probs, labels, weights)
        return {"temperature": torch.tensor(temperature, dtype=torch.float64)}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        return (log_probs / parameters["temperature"]).log_softmax(1)


def best_temperature(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """Return the T of the lowest mean negative log-likelihood: (N, C), (N,), (N,) of sum 1."""
    truth = log_probs.gather(1, labels[:, None])[:, 0]  # (N,)
    if makes_no_mistake(log_probs, labels):
        _warn("more", "makes no mistake there, and is made as confident as Laplace's rule has it")
        return _root(confidence_gap, log_probs, labels)
    if weighted_mean(truth - log_probs.mean(1), weights) <= 0:  # the slope where T has no end
        _warn("less", "is no better than chance there")
        return SOUGHT_TO
    slope = partial(nll_slope, weights=weights)
    return _root(slope, log_probs, labels, further=EXTRA_DECADES)


def makes_no_mistake(log_probs: Tensor, labels: Tensor) -> bool:
    """Return whether every true class is a predicted one: then more confidence always pays."""
    truth = log_probs.gather(1, labels[:, None])[:, 0]  # (N,)
    return bool((truth >= log_probs.max(1).values).all())


def _root(
    function: Callable[[float, Tensor, Tensor], float], *data: Tensor, further: int = 0
) -> float:
    """Return the T where a function that rises with log T is 0, or the bound nearest to it."""
    low, high = math.log(SOUGHT_FROM), math.log(SOUGHT_TO)
    for _ in range(further):
        low -= math.log(10) if function(low, *data) >= 0 else 0.0
        high += math.log(10) if function(high, *data) <= 0 else 0.0
    if function(low, *data) >= 0:
        return SOUGHT_FROM
    if function(high, *data) <= 0:
        return SOUGHT_TO
    return math.exp(scipy.optimize.brentq(function, low, high, args=data, xtol=1e-14))


def nll_slope(
    log_temperature: float, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None
) -> float:
    """Return T^2 times the derivative of the NLL by T: the mean of z_y - E_p[z]."""
    probs = (log_probs / math.exp(log_temperature)).softmax(1)  # (N, C)
    truth = log_probs.gather(1, labels[:, None])[:, 0]  # (N,)
    return float(weighted_mean(truth - (probs * log_probs).sum(1), weights))


def confidence_gap(log_temperature: float, log_probs: Tensor, labels: Tensor) -> float:
    """Return how far the mean confidence stays below (n + 1) / (n + 2).

    Laplace's rule of succession: that much is to be expected after n right answers of n.
    """
    confidence = (log_probs / math.exp(log_temperature)).softmax(1).max(1).values.mean()
    return (len(labels) + 1) / (len(labels) + 2) - float(confidence)


def _warn(which: str, reason: str) -> None:
    warnings.warn(
        "the validation data do not determine a temperature: the likelihood keeps rising with "
        f"{which} confidence, since the model {reason}. Calibrate on more, or other, examples.",
        CalibrationWarning,
        stacklevel=5,
    )
