"""Cloud maps: plasma fractals."""

import torch
from torch import Tensor

from falconcal.shifts.keyed_noise import KeyedNoise


def plasma(noise: KeyedNoise, size: int, decay: float) -> Tensor:
    """Return cloud maps from 0 to 1 by the diamond-square algorithm: (N, size, size).

    Fournier, Fussell & Carpenter, "Computer rendering of stochastic models", Communications of
    the ACM 25, 1982; the map wraps around, and size is a power of two.
    """
    heights = torch.zeros(len(noise.examples), size, size, device=noise.examples.device)
    wobble = noise.paired_uniform((size * size,)).mul_(2).sub_(1)  # one number per pixel
    step, roughness, used = size, 100.0, 0
    while step >= 2:
        count = size // step
        fresh = wobble[:, used : used + 3 * count**2].reshape(-1, 3, count, count)
        _fill(heights, step, fresh * roughness**2)
        step, roughness, used = step // 2, roughness / decay, used + 3 * count**2
    heights -= heights.amin((1, 2), keepdim=True)
    return heights.div_(heights.amax((1, 2), keepdim=True))


def _fill(heights: Tensor, step: int, wobble: Tensor) -> None:
    """Fill the middles of squares, then those of their sides, with means of four plus noise."""
    half = step // 2
    corners, middles = heights[:, ::step, ::step], heights[:, half::step, half::step]
    pairs = corners + corners.roll(-1, 1)
    middles.copy_((pairs + pairs.roll(-1, 2)).div_(4).add_(wobble[:, 0]))
    across = (middles + middles.roll(1, 1)).add_(corners).add_(corners.roll(-1, 2))
    heights[:, ::step, half::step] = across.div_(4).add_(wobble[:, 1])
    upright = (middles + middles.roll(1, 2)).add_(corners).add_(corners.roll(-1, 1))
    heights[:, half::step, ::step] = upright.div_(4).add_(wobble[:, 2])
