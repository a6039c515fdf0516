"""What several corruptions share: smoothing, rims and masks.

Smoothing sums shifted copies: unlike a convolution, its bits do not depend on the batch.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional


def gaussian_filtered(planes: Tensor, deviation: float, truncate: float = 4.0) -> Tensor:
    """Return the planes smoothed, edge pixels repeated outside: (N, C, H, W)."""
    radius = int(truncate * deviation + 0.5)
    if radius == 0:
        return planes
    return separable(padded(planes, radius, "replicate"), gaussian_weights(deviation, radius))


def gaussian_weights(deviation: float, radius: int) -> list[float]:
    offsets = range(-radius, radius + 1)
    weights = [math.exp(-(offset**2) / (2 * deviation**2)) for offset in offsets]
    return [weight / sum(weights) for weight in weights]


def padded(planes: Tensor, radius: int, mode: str) -> Tensor:
    """Return the planes with a rim: "replicate" repeats the edge, "reflect" mirrors about it."""
    return functional.pad(planes, (radius,) * 4, mode=mode)


def separable(planes: Tensor, weights: list[float]) -> Tensor:
    """Return planes that have a rim, filtered along both axes and without the rim."""
    return filter_axis(filter_axis(planes, weights, 2), weights, 3)


def filter_axis(planes: Tensor, weights: list[float], axis: int) -> Tensor:
    size = planes.shape[axis] - len(weights) + 1
    total = planes.narrow(axis, 0, size) * weights[0]
    for place, weight in enumerate(weights[1:], start=1):
        total.add_(planes.narrow(axis, place, size), alpha=weight)
    return total


@lru_cache(maxsize=32)
def smoothing_matrix(size: int, deviation: float, truncate: float, device: torch.device) -> Tensor:
    """Return Gaussian smoothing as a matrix; lines are mirrored, edges repeated: (size, size).

    For deviations as large as the image, whose many weights fold back onto its pixels.
    """
    radius = int(truncate * deviation + 0.5)
    weights = torch.tensor(gaussian_weights(deviation, radius))  # (2 * radius + 1,)
    sources = torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)  # (size, 2R + 1)
    folded = sources % (2 * size)
    folded = torch.minimum(folded, 2 * size - 1 - folded)
    matrix = torch.zeros(size, size).scatter_add_(1, folded, weights.expand(size, -1))
    return matrix.to(device)


def indicator(compare: Callable[..., Tensor], values: Tensor, limit: float) -> Tensor:
    """Return 1.0 where the comparison holds, else 0.0: much faster than bool and ``where``."""
    return compare(values, limit, out=torch.empty_like(values))
