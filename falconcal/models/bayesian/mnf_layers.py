"""Multiplicative normalising flows: means times a random vector z whose density is a flow.

Louizos & Welling, "Multiplicative Normalizing Flows for Variational Bayesian Neural Networks", ICML
2017. q(W | z) = N(z * M, sigma^2), z from N(mu0, s0^2) through flows; z multiplies the inputs of
a dense layer and the output channels of a convolution. An auxiliary r(z | W) bounds the divergence:
KL(q(W | z) || N(0, 1)) + KL of the bias + log q(z) - log r(z | W).
"""

import abc
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.models.bayesian.flows import Flows
from falconcal.models.bayesian.layer import (
    FIRST_RHO,
    BayesianLayer,
    Layer,
    normal_divergence,
    normal_like,
    run_with_weights,
    seeded,
)

FIRST_VARIANCE = 0.1  # s0^2
LEAST_VARIANCE = 1e-16  # of an output: the root has no gradient at 0, where black pixels would lead


class MultiplicativeFlow(BayesianLayer):
    """A layer with z of ``size`` elements; subclasses say which axis of W is multiplied by z."""

    def __init__(
        self, layer: Layer, size: int, activation: nn.Module, flows: int, width: int
    ) -> None:
        super().__init__(layer)
        bias = layer.bias
        self.bias_rho = None if bias is None else nn.Parameter(torch.full_like(bias, FIRST_RHO))
        first = 0.0 if flows else 1.0
        self.mu0 = nn.Parameter(first + 2 * size**-0.5 * torch.randn(size))
        self.log_variance0 = nn.Parameter(torch.full((size,), math.log(FIRST_VARIANCE)))
        self.flows = Flows(flows, size, width)
        self.auxiliary = AuxiliaryDensity(size, activation, flows, width)
        self.to(layer.weight)

    def draw_z(self, count: int) -> tuple[Tensor, Tensor]:
        """Draw z and log|dz / dz0| of it: (count, size), (count,)."""
        noise = torch.randn(count, len(self.mu0), dtype=self.mu0.dtype, device=self.mu0.device)
        return self.z_of(noise)

    def z_of(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        z: tuple[Tensor, Tensor] = self.flows(self.mu0 + (self.log_variance0 / 2).exp() * noise)
        return z

    def mean_forward(self, inputs: Tensor) -> Tensor:
        z, _ = self.flows(self.mu0[None])
        return run_with_weights(self.mean, inputs, self.scaled(z[0]), self.mean.bias)

    def sampled_forward(self, inputs: Tensor) -> Tensor:
        """Draw the outputs themselves, whose mean and variance have a closed form."""
        z, _ = self.draw_z(len(inputs))  # (N, size)
        mean, variance = self.multiplied(inputs, z), self._variance(inputs)
        return torch.addcmul(mean, variance.sqrt(), torch.randn_like(variance))

    def draw_weights(self, seeds: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
        deviation, sources = self.deviation, [seeded(seed, self.mu0) for seed in seeds]
        noise = torch.stack([normal_like(self.mu0, source) for source in sources])
        for z, source in zip(self.z_of(noise)[0], sources, strict=True):
            weight = torch.addcmul(self.scaled(z), deviation, normal_like(deviation, source))
            yield weight, self._drawn_bias(source)

    def divergence(self) -> Tensor:
        """Estimate the bound with one z; the entropy of z0 has a closed form."""
        z, log_determinant = self.draw_z(1)
        scaled, deviation = self.scaled(z[0]), self.deviation
        log_q = -(math.log(2 * math.pi) + 1 + self.log_variance0).sum() / 2 - log_determinant[0]
        log_r = self.auxiliary(z, self.by_z(scaled), self.by_z(deviation))
        total: Tensor = normal_divergence(scaled, deviation) + log_q - log_r
        bias, bias_deviation = self.mean.bias, self.bias_deviation
        if bias is None or bias_deviation is None:
            return total
        return total + normal_divergence(bias, bias_deviation)

    @property
    def bias_deviation(self) -> Tensor | None:
        return None if self.bias_rho is None else functional.softplus(self.bias_rho)

    def _drawn_bias(self, source: torch.Generator) -> Tensor | None:
        bias, deviation = self.mean.bias, self.bias_deviation
        if bias is None or deviation is None:
            return None
        return torch.addcmul(bias, deviation, normal_like(bias, source))

    def _variance(self, inputs: Tensor) -> Tensor:
        """Return x^2 sigma^2 + s_b^2, in full precision also under mixed precision."""
        bias = None if self.bias_deviation is None else self.bias_deviation.square()
        with torch.autocast(inputs.device.type, enabled=False):
            squares = inputs.to(self.rho.dtype).square()
            variance = run_with_weights(self.mean, squares, self.deviation.square(), bias)
        return variance.clamp_min(LEAST_VARIANCE)

    @abc.abstractmethod
    def multiplied(self, inputs: Tensor, z: Tensor) -> Tensor:
        """Return the mean of the outputs, with one z per example."""

    @abc.abstractmethod
    def scaled(self, z: Tensor) -> Tensor:
        """Return z * M: (size,) -> the shape of the weights."""

    @abc.abstractmethod
    def by_z(self, weight: Tensor) -> Tensor:
        """Return weights as a matrix whose rows belong to the elements of z: (size, ...)."""


class MNFLinear(MultiplicativeFlow):
    """z multiplies the inputs: mean (x * z) M^T + b."""

    def __init__(self, layer: nn.Linear, flows: int = 2, width: int = 50) -> None:
        super().__init__(layer, layer.in_features, nn.Tanh(), flows, width)

    def multiplied(self, inputs: Tensor, z: Tensor) -> Tensor:
        places = [1] * (inputs.ndim - 2)
        outputs: Tensor = self.mean(inputs * z.reshape(len(z), *places, -1))
        return outputs

    def scaled(self, z: Tensor) -> Tensor:
        return self.mean.weight * z  # (out, in)

    def by_z(self, weight: Tensor) -> Tensor:
        return weight.T  # (in, out)


class MNFConv2d(MultiplicativeFlow):
    """z multiplies the output channels, before the bias."""

    def __init__(self, layer: nn.Conv2d, flows: int = 2, width: int = 50) -> None:
        super().__init__(layer, layer.out_channels, nn.Identity(), flows, width)

    def multiplied(self, inputs: Tensor, z: Tensor) -> Tensor:
        outputs = run_with_weights(self.mean, inputs, self.mean.weight) * z[:, :, None, None]
        return outputs if self.mean.bias is None else outputs + self.mean.bias[:, None, None]

    def scaled(self, z: Tensor) -> Tensor:
        return self.mean.weight * z[:, None, None, None]  # (out, in / groups, height, width)

    def by_z(self, weight: Tensor) -> Tensor:
        return weight.flatten(1)  # (out, in / groups * height * width)


class AuxiliaryDensity(nn.Module):
    """r(z | W): normal after flows of its own, with a mean and a log-variance that depend on W.

    With a = activation(c^T W), the mean is b1 times the mean of a and the log-variance b2 times it.
    """

    def __init__(self, size: int, activation: nn.Module, flows: int, width: int) -> None:
        super().__init__()
        self.activation = activation
        scale = size**-0.5
        self.c = nn.Parameter(scale * torch.randn(size))
        self.b1 = nn.Parameter(scale * torch.randn(size))
        self.b2 = nn.Parameter(scale * torch.randn(size))
        self.flows = Flows(flows, size, width)

    def forward(self, z: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """Return log r(z | W) with W drawn: (1, size), (size, K), (size, K) -> ()."""
        variance = self.c.square() @ deviation.square()  # (K,)
        drawn = self.c @ mean + variance.sqrt() * torch.randn_like(variance)
        summary = self.activation(drawn).mean()
        end, log_determinant = self.flows(z)
        log_variance = self.b2 * summary  # (size,)
        squares = (end[0] - self.b1 * summary).square() * (-log_variance).exp()
        normal = -(math.log(2 * math.pi) + log_variance + squares).sum() / 2
        log_r: Tensor = normal + log_determinant[0]
        return log_r
