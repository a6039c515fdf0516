"""Masked RealNVP flows with the gates of inverse autoregressive ones.

Dinh, Sohl-Dickstein & Bengio, "Density estimation using Real NVP", ICLR 2017, as Louizos & Welling
2017 use it: m ~ Bernoulli(1/2), h = tanh(W (m * z)), gate s = sigmoid(. + 2) and mu of h,
z <- m * z + (1 - m) * (z * s + (1 - s) * mu), with log-determinant sum (1 - m) log s.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

OPEN = 2.0  # added to the gate's argument, so that at first a flow is nearly the identity


class MaskedFlow(nn.Module):
    """One step; its mask is drawn once and kept with the weights, so that the density is exact."""

    mask: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(size, width)
        self.mu, self.gate = nn.Linear(width, size), nn.Linear(width, size)
        # each element is Bernoulli(1/2), and no mask is all ones or all zeros
        self.register_buffer("mask", (torch.randperm(size) % 2).float())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # (N, D) -> (N, D), (N,)
        hidden = torch.tanh(self.hidden(self.mask * z))  # (N, width)
        # in the precision of z: under mixed precision the layers return half precision
        opening = self.gate(hidden).to(z) + OPEN  # (N, D)
        moved = self.mu(hidden).to(z).lerp(z, opening.sigmoid())  # z * s + (1 - s) * mu
        free = 1 - self.mask
        return self.mask * z + free * moved, (free * functional.logsigmoid(opening)).sum(1)


class Flows(nn.Module):
    """Any number of steps in sequence: z -> z and the sum of the log-determinants."""

    def __init__(self, count: int, size: int, width: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(MaskedFlow(size, width) for _ in range(count))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # (N, D) -> (N, D), (N,)
        total = z.new_zeros(len(z))
        for step in self.steps:
            z, log_determinant = step(z)
            total = total + log_determinant
        return z, total
