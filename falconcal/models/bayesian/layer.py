"""What Bayesian layers share: weights that are drawn, and their divergence from the prior.

Every weight has a mean and a deviation softplus(rho); the prior is N(0, 1). The mean is that of the
ordinary layer inside, which keeps its geometry and its first weights; rho starts at -3.
"""

import abc
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = nn.Linear | nn.Conv2d
FIRST_RHO = -3.0  # a deviation of 0.049


class BayesianLayer(nn.Module, abc.ABC):
    """A layer whose weights are drawn in training mode; in inference mode it uses their means.

    In training the noise differs between examples, which makes gradients less noisy. If ``draws``
    has seeds, the batch holds that many draws, all rows of one draw before those of the next, and
    each draw gets one network: that is half the work, and all examples share the same networks.
    """

    draws: tuple[int, ...] = ()  # one seed per draw

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.mean = layer
        self.rho = nn.Parameter(torch.full_like(layer.weight, FIRST_RHO))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return self.mean_forward(inputs)
        if not self.draws:
            return self.sampled_forward(inputs)
        parts = zip(inputs.chunk(len(self.draws)), self.draw_weights(self.draws), strict=True)
        return torch.cat([run_with_weights(self.mean, rows, *network) for rows, network in parts])

    @property
    def deviation(self) -> Tensor:
        return functional.softplus(self.rho)

    @abc.abstractmethod
    def mean_forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs without noise."""

    @abc.abstractmethod
    def sampled_forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs, with different noise for each example."""

    @abc.abstractmethod
    def draw_weights(self, seeds: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield the weights and the bias of one network per seed."""

    @abc.abstractmethod
    def divergence(self) -> Tensor:
        """Return KL(q || prior), summed over all weights."""


def run_with_weights(
    layer: Layer, inputs: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return the layer's outputs with other weights, and with its own stride, padding and so on."""
    if isinstance(layer, nn.Linear):
        return functional.linear(inputs, weight, bias)
    outputs: Tensor = layer._conv_forward(inputs, weight, bias)
    return outputs


def seeded(seed: int, weight: Tensor) -> torch.Generator:
    """Return a seeded generator on the device of a weight."""
    return torch.Generator(weight.device).manual_seed(seed)


def normal_like(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers, the same ones for any memory format of the weight."""
    noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype, device=weight.device)
    return torch.empty_like(weight).copy_(noise)


def normal_divergence(mean: Tensor, deviation: Tensor) -> Tensor:
    """KL(N(mean, deviation^2) || N(0, 1)), summed: -log s + (s^2 + m^2) / 2 - 1 / 2."""
    squares: Tensor = deviation.square().sum() + mean.square().sum()
    return (squares - mean.numel()) / 2 - deviation.log().sum()


def divergence(model: nn.Module) -> Tensor:
    """Return the sum of the divergences of a model's Bayesian layers."""
    layers = [layer for layer in model.modules() if isinstance(layer, BayesianLayer)]
    return torch.stack([layer.divergence() for layer in layers]).sum()
