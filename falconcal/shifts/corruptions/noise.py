"""Noise: Gaussian, shot, impulse and speckle."""

import torch
from torch import Tensor

from falconcal.shifts.corruptions.smoothing import indicator
from falconcal.shifts.keyed_noise import KeyedNoise

SMALL_RATE = 4.0  # photons; up to this rate the expansion is not accurate enough
PART = 2**15  # pixels searched at a time: the dozen passes over them stay in the cache


def gaussian_noise(images: Tensor, noise: KeyedNoise, deviation: float) -> Tensor:
    return images + noise.paired_normal(_shape(images)).mul_(deviation)


def speckle_noise(images: Tensor, noise: KeyedNoise, deviation: float) -> Tensor:
    return images + images * noise.paired_normal(_shape(images)).mul_(deviation)


def impulse_noise(images: Tensor, noise: KeyedNoise, share: float) -> Tensor:
    """Return images with a share of the values set to 0 or 1, half of them each."""
    chance = noise.paired_uniform(_shape(images))
    white = indicator(torch.lt, chance, share / 2)
    kept = indicator(torch.ge, chance, share)
    return (images * kept).add_(white)


def shot_noise(images: Tensor, noise: KeyedNoise, photons: float) -> Tensor:
    """Return images as counts of photons, ``photons`` of them expected for a white pixel."""
    return poisson(images * photons, noise) / photons


def poisson(rate: Tensor, noise: KeyedNoise) -> Tensor:
    """Return Poisson counts of the given means, one random number each: (N, ...)."""
    chance = noise.paired_uniform(_shape(rate), stream=1)
    many = indicator(torch.gt, rate, SMALL_RATE)
    expanded = _expansion(rate.clamp(min=SMALL_RATE), noise.paired_normal(_shape(rate), stream=0))
    few = rate * (1 - many)  # 0 where there are many photons: the search ends at once
    parts = zip(torch.split(few.flatten(), PART), torch.split(chance.flatten(), PART), strict=True)
    found = torch.cat([_search(few_part, chance_part) for few_part, chance_part in parts])
    return expanded.mul_(many).add_(found.reshape(rate.shape))


def _expansion(rate: Tensor, normal: Tensor) -> Tensor:
    """Return the inverse distribution function by an expansion about the normal one.

    Giles, "Algorithm 955: approximation of the inverse Poisson cumulative distribution function",
    ACM Transactions on Mathematical Software 42, 2016, equation for Q_N2.
    """
    root = rate.sqrt()
    square = normal * normal
    first = square / 6 + 1 / 3
    second = (square / 72 + 1 / 36) * normal
    third = (square / 270 + 7 / 810) * square - 8 / 405
    return ((third / root - second) / root + first + (normal + root) * root).floor_().clamp_(min=0)


def _search(rate: Tensor, chance: Tensor) -> Tensor:
    """Return the inverse distribution function, summed term by term until ``chance``."""
    term = torch.exp(-rate)
    left, counts, more = chance - term, torch.zeros_like(rate), torch.empty_like(rate)
    for count in range(1, 20):  # beyond, a mean of 4 leaves less than 1e-8
        if left.amax() <= 0:
            break
        counts += torch.gt(left, 0, out=more)
        left -= term.mul_(rate).mul_(1 / count)
    return counts


def _shape(images: Tensor) -> tuple[int, ...]:
    return tuple(images.shape[1:])
