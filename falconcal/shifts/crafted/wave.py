"""Wave: rows and columns sway to and fro like a picture seen through moving water."""

import math

from torch import Tensor

from falconcal.shifts.crafted.warping import STRENGTHS, check_image_batch, pixel_grid, read_at
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

PERIODS = (1.0, 3.0)  # over the image, drawn between these
LARGEST_AMPLITUDE = 0.4  # amplitude at strength 1, in units of half the image's side


def wave_shift() -> Shift:
    return Shift("wave", STRENGTHS, wave, "rows and columns sway in sine waves")


def wave(images: Tensor, strength: float, noise: KeyedNoise) -> Tensor:
    """Return images (N, C, H, W) whose rows and columns sway, each by waves of its own."""
    check_image_batch(images, "wave")
    down, right = pixel_grid(images)  # (H, W) each
    drawn = noise.uniform((2, 2, 1, 1)).to(images)  # (N, axis, number, 1, 1)
    low, high = PERIODS
    speed = math.pi * (low + (high - low) * drawn[:, :, 0])  # (N, 2, 1, 1)
    phase = 2 * math.pi * drawn[:, :, 1]
    reach = strength * LARGEST_AMPLITUDE
    moved_down = down + reach * (speed[:, 0] * right + phase[:, 0]).sin()
    moved_right = right + reach * (speed[:, 1] * down + phase[:, 1]).sin()
    return read_at(images, moved_down, moved_right)
