"""Blurs: defocus, glass, motion, zoom and Gaussian."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.shifts.corruptions.smoothing import (
    gaussian_filtered,
    gaussian_weights,
    indicator,
    padded,
    separable,
)
from falconcal.shifts.keyed_noise import KeyedNoise

GREY_ROUNDING = 1e-4  # of a grey value: the rounding error of float32 before values become bytes


def gaussian_blur(images: Tensor, noise: KeyedNoise, deviation: float) -> Tensor:  # noqa: ARG001
    return gaussian_filtered(images, deviation)


def defocus_blur(images: Tensor, noise: KeyedNoise, radius: float, rim: float) -> Tensor:  # noqa: ARG001
    """Return the images spread over a disc whose rim is smoothed."""
    reach, soft = int(radius), 1 if radius <= 8 else 2
    smoothed = separable(
        padded(images, reach + soft, "reflect"), gaussian_weights(rim, soft)
    )  # (N, C, H + 2 * reach, W + 2 * reach)
    halves = [math.isqrt(int(radius**2 - row**2)) for row in range(reach + 1)]
    return _disc_sum(smoothed, halves).div_(halves[0] * 2 + 1 + sum(4 * h + 2 for h in halves[1:]))


def _disc_sum(planes: Tensor, halves: list[int]) -> Tensor:
    """Return the sum over a disc whose row r spans ``halves[r]`` pixels to either side.

    Row sums are built from the narrowest row to the widest, so the cost grows with the number of
    rows, not with the area.
    """
    reach = len(halves) - 1
    height, width = planes.shape[2] - 2 * reach, planes.shape[3] - 2 * reach
    row_sum, half = planes.narrow(3, reach, width).clone(), 0
    total = torch.zeros_like(row_sum.narrow(2, 0, height))
    for row in range(reach, -1, -1):
        while half < halves[row]:
            half += 1
            row_sum += planes.narrow(3, reach - half, width)
            row_sum += planes.narrow(3, reach + half, width)
        for place in {reach - row, reach + row}:
            total += row_sum.narrow(2, place, height)
    return total


def glass_blur(
    images: Tensor, noise: KeyedNoise, deviation: float, reach: float, rounds: float
) -> Tensor:
    """Return the images smoothed, each pixel replaced by one near it, and smoothed again."""
    grey = (gaussian_filtered(images, deviation) * 255 + GREY_ROUNDING).floor_().div_(255)
    height, width = images.shape[2:]
    sources = torch.arange(height * width, device=images.device).expand(len(images), -1)
    for number in range(int(rounds)):
        moves = noise.paired_uniform((2, height, width), stream=number).mul_(2 * reach).floor_()
        sources = sources.gather(1, swapped_sources(moves.long() - int(reach), int(reach)))
    pixels = grey.flatten(2).gather(2, sources[:, None].expand(-1, images.shape[1], -1))
    return gaussian_filtered(pixels.reshape(images.shape), deviation)


def swapped_sources(moves: Tensor, reach: int) -> Tensor:
    """Return the pixel whose value each pixel takes: moves (N, 2, H, W) -> (N, H * W).

    Pixels are visited from the last to the first, except the rim, and each takes the current value
    of the pixel it points at. (The published code means to swap the two, but its arrays share
    memory, so it copies; this does the same, to give the published images.) A pixel that points at
    one visited earlier takes what that one took: such chains are halved until none is left.
    """
    pointed, later = _pointed(moves, reach)
    while later.any():
        further = pointed.gather(1, pointed)
        later, pointed = later * later.gather(1, pointed), pointed + (further - pointed) * later
    return pointed


def _pointed(moves: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Return the pixel that each points at, and 1 where that one is visited earlier, else 0."""
    height, width = moves.shape[2:]
    rows = torch.arange(height, device=moves.device)[:, None]
    columns = torch.arange(width, device=moves.device)
    inside = (rows > reach) & (rows <= height - reach) & (columns > reach)
    inside = (inside & (columns <= width - reach)).long()  # (H, W)
    own = rows * width + columns
    pointed = (own + (moves[:, 0] * width + moves[:, 1]) * inside).flatten(1)  # (N, H * W)
    own, inside = own.flatten().expand_as(pointed), inside.flatten().expand_as(pointed)
    return pointed, indicator(torch.gt, pointed - own, 0) * inside.gather(1, pointed)


def motion_blur(images: Tensor, noise: KeyedNoise, radius: float, deviation: float) -> Tensor:
    """Return each image blurred in one direction, up to 45 degrees from the horizontal."""
    angles = noise.paired_uniform((1,))[:, 0] * 90 - 45
    return motion_blurred(images, angles, int(radius), deviation)


def motion_blurred(images: Tensor, angles: Tensor, radius: int, deviation: float) -> Tensor:
    """Return each image blurred along its own angle (N,), in degrees, as ImageMagick does it.

    The weights are half a Gaussian over whole-pixel steps; edge pixels are repeated outside.
    """
    length = 2 * radius + 1
    weights = gaussian_weights(deviation, length - 1)[length - 1 :]
    around = padded(images, length - 1, "replicate")
    return torch.stack(
        [
            _motion_blurred_along(image, images.shape[2:], _steps(angle, length), weights)
            for image, angle in zip(around, angles.tolist(), strict=True)
        ]
    ).div_(sum(weights))


def _steps(angle: float, length: int) -> list[tuple[int, int]]:
    """Return the whole-pixel offsets (down, right) along an angle."""
    down, right = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    return [(math.ceil(step * down - 0.5), math.ceil(step * right - 0.5)) for step in range(length)]


def _motion_blurred_along(
    around: Tensor, size: torch.Size, steps: list[tuple[int, int]], weights: list[float]
) -> Tensor:
    height, width = size
    rim = len(steps) - 1
    total = torch.zeros_like(around[:, :height, :width])  # (C, H, W)
    for (down, right), weight in zip(steps, weights, strict=True):
        top, left = rim + down, rim + right
        total.add_(around[:, top : top + height, left : left + width], alpha=weight)
    return total


def zoom_blur(images: Tensor, noise: KeyedNoise, *factors: float) -> Tensor:  # noqa: ARG001
    """Return the mean of the images and of their magnified copies, one per factor."""
    total = images.clone()
    for factor in factors:
        total += magnified(images, factor)
    return total.div_(len(factors) + 1)


def magnified(images: Tensor, factor: float) -> Tensor:
    """Return the middle of the images, magnified bilinearly, corner to corner."""
    height, width = images.shape[2:]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    middle = images[:, :, top : top + rows, left : left + columns]
    size = (round(rows * factor), round(columns * factor))
    larger = functional.interpolate(middle, size, mode="bilinear", align_corners=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return larger[:, :, top : top + height, left : left + width]
