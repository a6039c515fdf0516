"""Background lines: bright straight lines cross the image."""

import math

import torch
from torch import Tensor

from falconcal.data import Bounds
from falconcal.shifts.crafted.warping import STRENGTHS, check_image_batch, pixel_grid
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

MOST_LINES = 12  # lines at strength 1
HALF_WIDTH = 0.045  # of a line, in units of half the image's side


def background_lines_shift() -> Shift:
    return Shift(
        "background_lines",
        STRENGTHS,
        background_lines,
        "1 to 11 bright lines cross the image",
        needs=("bounds",),
    )


def background_lines(
    images: Tensor, strength: float, noise: KeyedNoise, *, bounds: Bounds | None = None
) -> Tensor:
    """Return images (N, C, H, W) under lines of random place, slope and brightness."""
    check_image_batch(images, "background_lines")
    low, high = (bounds.low, bounds.high) if bounds is not None else (0.0, 1.0)
    count = max(1, round(strength * MOST_LINES))
    drawn = noise.uniform((3, count, 1, 1)).to(images)  # (N, 3, lines, 1, 1)
    down, right = pixel_grid(images)
    angle = math.pi * drawn[:, 0]  # (N, lines, 1, 1)
    distance = down * angle.cos() + right * angle.sin() - (2 * drawn[:, 1] - 1)
    bright = low + (high - low) * (0.5 + 0.5 * drawn[:, 2])  # (N, lines, 1, 1)
    lines = torch.where(distance.abs() <= HALF_WIDTH, bright, low).amax(1, keepdim=True)
    return torch.maximum(images, lines)
