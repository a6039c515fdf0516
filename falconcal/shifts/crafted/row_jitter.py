"""Row jitter: rows of pixels slip sideways, each by its own distance, as in a bad video."""

import torch
from torch import Tensor

from falconcal.shifts.crafted.warping import STRENGTHS, check_image_batch
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

FURTHEST_SLIP = 0.5  # furthest slip at strength 1, as a fraction of the width


def row_jitter_shift() -> Shift:
    return Shift(
        "row_jitter", STRENGTHS, row_jitter, "rows slip sideways, each by its own distance"
    )


def row_jitter(images: Tensor, strength: float, noise: KeyedNoise) -> Tensor:
    """Return images (N, C, H, W) whose rows have slipped, round from one edge to the other."""
    check_image_batch(images, "row_jitter")
    height, width = images.shape[2:]
    drawn = noise.uniform((height, 1)).to(images) * 2 - 1  # (N, H, 1)
    slip = (drawn * (strength * FURTHEST_SLIP * width)).round().long()
    columns = torch.arange(width, device=images.device)  # (W,)
    sources = (columns + slip) % width  # (N, H, W)
    return images.gather(3, sources[:, None].expand_as(images))
