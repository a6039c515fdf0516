"""Flipout: one draw of the weights per batch, and random signs that differ between examples.

Wen, Vicol, Ba, Tran & Grosse, "Flipout: Efficient Pseudo-Independent Weight Perturbations on
Mini-Batches", ICLR 2018, equation 4: y = x M^T + b + ((x * s_in) (sigma * eps)^T) * s_out. Biases
are plain numbers, as usual with Flipout.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from falconcal.models.bayesian.layer import (
    BayesianLayer,
    normal_divergence,
    normal_like,
    run_with_weights,
    seeded,
)


class Flipout(BayesianLayer):
    """An ``nn.Linear`` or ``nn.Conv2d`` with normal weights; one sign per example and feature."""

    def mean_forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.mean(inputs)
        return outputs

    def sampled_forward(self, inputs: Tensor) -> Tensor:
        perturbation = self.deviation * torch.randn_like(self.rho)  # one per batch
        flipped = run_with_weights(self.mean, inputs * self._signs(inputs), perturbation)
        return torch.addcmul(self.mean_forward(inputs), flipped, self._signs(flipped))

    def draw_weights(self, seeds: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
        mean, deviation = self.mean.weight, self.deviation
        for seed in seeds:
            noise = normal_like(mean, seeded(seed, mean))
            yield torch.addcmul(mean, deviation, noise), self.mean.bias

    def divergence(self) -> Tensor:
        return normal_divergence(self.mean.weight, self.deviation)

    def _signs(self, features: Tensor) -> Tensor:
        """Draw +1 or -1 for each example and feature, the same at all positions of an example."""
        axis = features.ndim - (1 if isinstance(self.mean, nn.Linear) else 3)
        shape = [size if place in (0, axis) else 1 for place, size in enumerate(features.shape)]
        drawn = torch.randint(2, shape, device=features.device, dtype=features.dtype)
        return drawn * 2 - 1  # torch.sign of a random number could be 0
