"""Swirl: the image is turned about its middle, most in the middle and not at all at the edge.

Of the crafted families this is the nearest to a rotation, so results on rotations are also shown
without it.
"""

import math

from torch import Tensor

from falconcal.shifts.crafted.warping import STRENGTHS, check_image_batch, pixel_grid, read_at
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

LARGEST_TURN = 1.5 * math.pi  # of the middle at strength 1
RADIUS = 0.6  # at which the turn has fallen to 1/e, in units of half the image's side


def swirl_shift() -> Shift:
    return Shift("swirl", STRENGTHS, swirl, "turned in the middle, still at the edge")


def swirl(images: Tensor, strength: float, noise: KeyedNoise) -> Tensor:
    """Return images (N, C, H, W) turned to a side of their own, less and less outwards."""
    check_image_batch(images, "swirl")
    down, right = pixel_grid(images)  # (H, W) each
    side = (noise.uniform((1, 1)) < 0.5).float() * 2 - 1  # (N, 1, 1)
    fading = (-(down.square() + right.square()) / RADIUS**2).exp()
    angle = side.to(images) * (strength * LARGEST_TURN * fading)  # (N, H, W)
    cosine, sine = angle.cos(), angle.sin()
    return read_at(images, cosine * down - sine * right, sine * down + cosine * right)
