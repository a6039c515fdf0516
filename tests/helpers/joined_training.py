"""A network that several processes train together."""

import torch
from torch import nn


def plain_network() -> nn.Module:
    """Return a network without dropout or running statistics, which processes would not share."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 16), nn.ReLU(), nn.Linear(16, 3)
    )
