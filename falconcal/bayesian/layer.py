"""What Bayesian layers share: weights that are drawn, and the price of not being the prior.

Every weight has a mean and a deviation softplus(rho); the prior is N(0, 1). The mean is that of the
ordinary layer inside, so its geometry and its first weights are kept; rho starts at -3.
"""

import abc
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = nn.Linear | nn.Conv2d
FIRST_RHO = -3.0  # a deviation of 0.049


class Bayesian(nn.Module, abc.ABC):
    """A layer whose weights are drawn: in training mode; in inference mode it is its mean.

    In training the noise differs from example to example, which makes gradients steadier. A batch
    that holds ``draws``, one after another, gets as many networks, one a draw: half the work, and
    all examples are answered by the same ones.
    """

    draws: tuple[int, ...] = ()  # the seed of each

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.mean = layer
        self.rho = nn.Parameter(torch.full_like(layer.weight, FIRST_RHO))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return self.still(inputs)
        if not self.draws:
            return self.noisy(inputs)
        parts = zip(inputs.chunk(len(self.draws)), self.networks(self.draws), strict=True)
        return torch.cat([run(self.mean, rows, *network) for rows, network in parts])

    @property
    def deviation(self) -> Tensor:
        return functional.softplus(self.rho)

    @abc.abstractmethod
    def still(self, inputs: Tensor) -> Tensor:
        """Return the outputs without noise."""

    @abc.abstractmethod
    def noisy(self, inputs: Tensor) -> Tensor:
        """Return the outputs, each example's with noise of its own."""

    @abc.abstractmethod
    def networks(self, seeds: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Draw weights and bias of a network for each seed, one at a time."""

    @abc.abstractmethod
    def divergence(self) -> Tensor:
        """Return KL(q || prior), summed over all weights."""


def run(layer: Layer, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return what the layer would with other weights; stride, padding and the like are its own."""
    if isinstance(layer, nn.Linear):
        return functional.linear(inputs, weight, bias)
    outputs: Tensor = layer._conv_forward(inputs, weight, bias)
    return outputs


def seeded(seed: int, weight: Tensor) -> torch.Generator:
    """Return random numbers where a weight is."""
    return torch.Generator(weight.device).manual_seed(seed)


def normal_like(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers, the same ones whatever the order of a weight in memory."""
    noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype, device=weight.device)
    return torch.empty_like(weight).copy_(noise)


def normal_divergence(mean: Tensor, deviation: Tensor) -> Tensor:
    """KL(N(mean, deviation^2) || N(0, 1)), summed: -log s + (s^2 + m^2) / 2 - 1 / 2."""
    squares: Tensor = deviation.square().sum() + mean.square().sum()
    return (squares - mean.numel()) / 2 - deviation.log().sum()


def divergence(model: nn.Module) -> Tensor:
    """Return the sum of the divergences of a model's Bayesian layers."""
    layers = [layer for layer in model.modules() if isinstance(layer, Bayesian)]
    return torch.stack([layer.divergence() for layer in layers]).sum()
