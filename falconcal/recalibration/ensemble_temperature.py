"""Ensemble temperature scaling: a mixture of scaled, raw and uniform probabilities.

Zhang, Kailkhura & Han, "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration
in Deep Learning", ICML 2020, equation 4: ``w1 softmax(z / T) + w2 softmax(z) + w3 / C``. T comes
first, as in temperature scaling; then w, of sum 1 and never below 0, by likelihood (the paper takes
squares or likelihood). With w = (1, 0, 0) it is temperature scaling. The predicted class never
changes.

The weights are sought without the constraint on their sum: ``-mean log(v . p_y) + sum v`` is convex
in v, and its minimum has the sum 1, since scaling v by s changes it by ``-log s + (s - 1) sum v``.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor

from falconcal.core.settings import settings
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import Calibrator, floored_log
from falconcal.recalibration.convex import minimise
from falconcal.recalibration.temperature import best_temperature


@settings
class EnsembleTemperature(Calibrator):
    """Ensemble temperature scaling: ``w1 softmax(z / T) + w2 softmax(z) + w3 / C``.

    The predicted class never changes. Warns (``CalibrationWarning``) where the data do not
    determine T.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.EnsembleTemperature()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> float(calibrated.calibration.mixture.sum())
        1.0
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("temperature", "mixture")  # (), (3,)

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        best = best_temperature(log_probs, labels, weights)
        temperature = torch.tensor(best, dtype=torch.float64)
        parts = mixed_parts(log_probs, temperature)  # (3, N, C)
        truth = parts.gather(2, labels.expand(3, -1)[:, :, None])[:, :, 0].exp()  # (3, N)
        return {"temperature": temperature, "mixture": best_mixture(truth, weights)}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        parts = mixed_parts(log_probs, parameters["temperature"])  # (3, N, C)
        return (parts + parameters["mixture"].log()[:, None, None]).logsumexp(0)


def mixed_parts(log_probs: Tensor, temperature: Tensor) -> Tensor:
    """Return the log of scaled, raw and uniform probabilities: (N, C) -> (3, N, C)."""
    scaled = (log_probs / temperature).log_softmax(1)
    uniform = torch.full_like(log_probs, -math.log(log_probs.shape[1]))
    return torch.stack([scaled, log_probs, uniform])


def best_mixture(truth: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return w of the highest likelihood, of sum 1: probabilities of the true class (3, N)."""
    each = torch.full_like(truth[0], 1 / truth.shape[1]) if weights is None else weights  # (N,)

    def loss(mixture: Tensor) -> Tensor:
        return mixture.sum() - (each * floored_log(mixture @ truth)).sum()

    start = torch.full((3,), 1 / 3, dtype=torch.float64)
    found = minimise(loss, start, lowest=torch.zeros_like(start))
    return found / found.sum()
