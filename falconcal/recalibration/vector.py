"""Vector scaling: Platt's method for several classes, a weight and an offset for each.

Guo, Pleiss, Sun & Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, section 4.2;
Platt, "Probabilistic Outputs for Support Vector Machines", 1999. ``softmax(w * z + b)``, w and b by
class, of the lowest validation likelihood loss, which is convex in both. z are log-probabilities,
since logits are known only up to a constant and w would weigh it. The predicted class may change.
"""

from typing import ClassVar

import torch
from torch import Tensor

from falconcal.core.settings import NonNegative, settings
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import Calibrator
from falconcal.recalibration.convex import minimise
from falconcal.recalibration.fit_losses import weighted_nll


@settings
class VectorScaling(Calibrator):
    """Vector scaling: ``softmax(w * z + b)``, w and b per class from validation data.

    The predicted class may change.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.VectorScaling()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("weight", "offset")

    penalty: NonNegative = 1.0
    """1 / variance of a normal prior around w = 1, b = 0; 0 is plain maximum likelihood, which
    sends a class that the validation labels lack to minus infinity."""

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        weight, offset = best_vectors(log_probs, labels, self.penalty, weights)
        return {"weight": weight, "offset": offset}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        return vector_scaled(log_probs, parameters["weight"], parameters["offset"])


def vector_scaled(log_probs: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
    return (weight * log_probs + offset).log_softmax(1)  # (N, C)


def best_vectors(
    log_probs: Tensor, labels: Tensor, penalty: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return w and b of the highest posterior: (N, C), (N,) -> (C,), (C,)."""
    plain = torch.stack([torch.ones(log_probs.shape[1]), torch.zeros(log_probs.shape[1])]).double()

    def loss(vectors: Tensor) -> Tensor:  # (2, C)
        likelihood = weighted_nll(vector_scaled(log_probs, *vectors), labels, weights)
        return likelihood + penalty * (vectors - plain).square().sum() / (2 * len(labels))

    weight, offset = minimise(loss, plain)
    return weight.clone(), offset.clone()  # each owns its memory, so that both can be stored
