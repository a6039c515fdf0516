"""Density-aware calibration: logits divided by a weighted sum of distances to training examples.

Tomani, Waseda, Shen & Cremers, "Beyond In-Domain Scenarios: Robust Density-Aware Calibration", ICML
2023: ``softmax(z / S(x))``, ``S(x) = sum_l w_l s_l(x) + w_0`` with ``w_l >= 0``. s_l is the
distance to the k-th nearest stored training example at stage l: what the blocks of the network give
out, pooled over space, and the logits, each scaled to length 1. Fitted by squares, unless these
make it far too sure (``loss``). Any calibrator may follow:
``EnsembleTemperature(base=DensityAware(base=...))``. The predicted class never changes.

The paper says the k-th neighbour, the published code takes the nearest and squares the distance:
both are here, by name. w_0 begins at the best single temperature, and S is held above a lowest
value. Distances are standardised, which changes the numbers w, not what S can be. Where the model
makes no mistake on the validation data, S stays at that temperature.
"""

import math
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import Inputs
from falconcal.core.settings import Count, settings
from falconcal.data import Examples
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.convex import minimise
from falconcal.recalibration.fit_losses import FitLoss, Measure, found_by_loss, smoothed_nll
from falconcal.recalibration.neighbour_calibrator import NeighbourCalibrator
from falconcal.recalibration.neighbours import Neighbours, in_blocks
from falconcal.recalibration.stages import INPUT, ViewKind, find_stages
from falconcal.recalibration.temperature import best_temperature, makes_no_mistake
from falconcal.recalibration.temperature_map import LOWEST_TEMPERATURE, raw_temperature


@settings
class DensityAware(NeighbourCalibrator):
    """Divide the logits by a sum of distances to training examples, fitted on clean data.

    It needs validation data, and training data where there is some. The fitted model holds features
    of training examples: keep it as private as the data.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> train, validation = data.train.batches(50), data.validation.batches(100)
        >>> model = falconcal.L2Dropout(epochs=2).fit(network, train, validation)
        >>> calibrated = falconcal.DensityAware(stored=500).fit(model, train, validation)
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("weights",)  # (stages + 1,)

    views: ViewKind = "pooled"
    """How maps and sequences of a stage are seen: ``pooled`` as in the paper, on a ``grid``, or
    ``both``."""
    neighbours: Count = 50
    """k: the distance to the k-th nearest stored example counts; the paper's for CIFAR-10."""
    distance: Literal["kth", "nearest_squared"] = "kth"
    """Which distance counts: to the ``kth`` neighbour as in the paper, or to the nearest, squared,
    as in the published code."""
    loss: FitLoss = "auto"
    """What is made small: ``squares`` as in the paper, or the ``likelihood``, smoothed by Platt's
    rule. ``auto`` takes squares unless their fit has a worse likelihood than one temperature, as on
    small or drifted samples, where squares can be lowered by being far too sure."""

    def observer(self, model: nn.Module, home: Examples) -> Neighbours:
        nearest = self.distance == "nearest_squared"
        return self.stored_home(model, home, k=1 if nearest else self.neighbours, squared=nearest)

    def found_stages(self, model: nn.Module, inputs: Inputs) -> tuple[str, ...]:
        return tuple(stage for stage in find_stages(model, inputs) if stage != INPUT)

    def learn(  # type: ignore[override]  # it is given features too
        self,
        log_probs: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        *,
        features: Tensor,
        rising: int,
    ) -> Parameters:
        start = torch.zeros(rising + 1, dtype=torch.float64)
        start[-1] = best_temperature(log_probs, labels, weights)
        lowest = torch.zeros_like(start)
        lowest[-1] = -math.inf

        def measured(measure: Measure, values: Tensor) -> Tensor:
            scaled = (log_probs / scales(values, features)[:, None]).log_softmax(1)
            return measure(scaled, labels, weights)

        def search(measure: Measure) -> Tensor:
            return minimise(partial(measured, measure), start, lowest=lowest)

        if makes_no_mistake(log_probs, labels):  # squares would only sharpen
            return {"weights": start}
        found = found_by_loss(self.loss, search, partial(measured, smoothed_nll), start)
        return {"weights": found}

    def apply(  # type: ignore[override]
        self, log_probs: Tensor, *, features: Tensor, weights: Tensor
    ) -> Tensor:
        scale = in_blocks(lambda rows: scales(weights, rows), features)  # (N,)
        return (log_probs / scale[:, None]).log_softmax(1)


def scales(weights: Tensor, features: Tensor) -> Tensor:
    """Return S, the weighted sum of the distances, held above a lowest value: (N, F) -> (N,)."""
    return raw_temperature(weights, features).clamp_min(LOWEST_TEMPERATURE)
