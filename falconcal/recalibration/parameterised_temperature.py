"""Parameterised temperature scaling: a temperature that a small network reads off the logits.

Tomani, Cremers & Buettner, "Parameterized Temperature Scaling for Boosting the Expressive Power in
Post-Hoc Uncertainty Calibration", ECCV 2022: ``softmax(z / T(z))``, ``T(z) = |g(sort(z)[:k])|``, g
a network of two hidden layers of 5, fitted by squares, unless these make it far too sure
(``loss``). The predicted class never changes.

Here z are log-probabilities, standardised, since logits are known only up to a constant; g is a
factor on the best single temperature, ``T(z) = T |g|`` and never below a twentieth of it, and
begins at 1: with weights of 0 it is temperature scaling. That start and a penalty keep it from
following small validation sets too closely. Where the model makes no mistake on the validation
data, T stays at the single temperature. Fitted by L-BFGS.
"""

import math
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from falconcal.core.settings import Count, NonNegative, Seed, settings
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import Calibrator
from falconcal.recalibration.convex import NETWORK_ITERATIONS, minimise
from falconcal.recalibration.fit_losses import FitLoss, Measure, found_by_loss, smoothed_nll
from falconcal.recalibration.neighbours import in_blocks
from falconcal.recalibration.temperature import best_temperature, makes_no_mistake

HIDDEN_UNITS = 5  # per hidden layer
LOWEST_FACTOR = 0.05


@settings
class ParameterisedTemperature(Calibrator):
    """A temperature per example, from its largest log-probabilities alone.

    The predicted class never changes. Warns (``CalibrationWarning``) where the data do not
    determine a temperature to begin with.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.ParameterisedTemperature()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("temperature", "network", "centre", "spread")

    largest: Count = 10
    """k: how many of the log-probabilities, the largest first, the temperature depends on."""
    penalty: NonNegative = 10.0
    """1 / variance of a normal prior on g's weights; 0 follows a small validation set closely."""
    seed: Seed = 0
    """Of g's first weights."""
    loss: FitLoss = "auto"
    """What is made small: ``squares`` as in the paper, or the ``likelihood``, smoothed by Platt's
    rule. ``auto`` takes squares unless their fit has a worse likelihood than one temperature."""

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        best = best_temperature(log_probs, labels, weights)
        temperature = torch.tensor(best, dtype=torch.float64)
        top = largest_first(log_probs, self.largest)  # (N, k)
        centre, spread = top.mean(0), top.std(0).nan_to_num(1.0).clamp_min(1e-6)
        features = (top - centre) / spread

        def measured(measure: Measure, network: Tensor) -> Tensor:
            heat = temperature * factors(network, features)  # (N,)
            return measure((log_probs / heat[:, None]).log_softmax(1), labels, weights)

        def penalised(measure: Measure, network: Tensor) -> Tensor:
            size = network[:-1].square().sum() / (2 * len(labels))
            return measured(measure, network) + self.penalty * size

        def search(measure: Measure) -> Tensor:
            return minimise(partial(penalised, measure), start, NETWORK_ITERATIONS)

        start = found = _start(features.shape[1], self.seed)
        if not makes_no_mistake(log_probs, labels):  # squares would only sharpen
            found = found_by_loss(self.loss, search, partial(measured, smoothed_nll), start)
        return {"temperature": temperature, "network": found, "centre": centre, "spread": spread}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        top = largest_first(log_probs, self.largest)
        features = (top - parameters["centre"]) / parameters["spread"]
        factor = in_blocks(lambda rows: factors(parameters["network"], rows), features)
        return (log_probs / (parameters["temperature"] * factor)[:, None]).log_softmax(1)


def largest_first(log_probs: Tensor, count: int) -> Tensor:
    """Return the largest log-probabilities of each row in falling order: (N, C) -> (N, k)."""
    return log_probs.topk(min(count, log_probs.shape[1])).values


def factors(network: Tensor, features: Tensor) -> Tensor:
    """Return |g| of the features, held above a lowest value: (W,), (N, k) -> (N,)."""
    first, second, last = torch.split(network, _sizes(features.shape[1]))
    hidden = torch.relu(_layer(first.reshape(HIDDEN_UNITS, -1), features))  # (N, units)
    hidden = torch.relu(_layer(second.reshape(HIDDEN_UNITS, -1), hidden))
    return _layer(last[None], hidden)[:, 0].abs().clamp_min(LOWEST_FACTOR)


def _sizes(features: int) -> list[int]:
    """Return how many numbers each of g's three layers has."""
    return [HIDDEN_UNITS * (features + 1), HIDDEN_UNITS * (HIDDEN_UNITS + 1), HIDDEN_UNITS + 1]


def _layer(weights: Tensor, inputs: Tensor) -> Tensor:
    return inputs @ weights[:, :-1].T + weights[:, -1]  # the last column is the offset


def _start(features: int, seed: int) -> Tensor:
    """Return small random hidden layers, and a last one that gives 1 whatever they say."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(sum(_sizes(features)), generator=generator, dtype=torch.float64)
    start /= math.sqrt(HIDDEN_UNITS)
    start[-1 - HIDDEN_UNITS :] = 0.0
    start[-1] = 1.0
    return start
