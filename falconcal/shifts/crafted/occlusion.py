"""Occlusion: a box of one grey level hides a part of the image."""

from torch import Tensor

from falconcal.data import Bounds
from falconcal.shifts.crafted.warping import STRENGTHS, check_image_batch, pixel_grid
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift


def occlusion_shift() -> Shift:
    return Shift(
        "occlusion",
        STRENGTHS,
        occlusion,
        "a grey box hides 0.1 to 0.9 of the image",
        needs=("bounds",),
    )


def occlusion(
    images: Tensor, share: float, noise: KeyedNoise, *, bounds: Bounds | None = None
) -> Tensor:
    """Return images (N, C, H, W) with a share of the area under a box of a random grey level."""
    check_image_batch(images, "occlusion")
    low, high = (bounds.low, bounds.high) if bounds is not None else (0.0, 1.0)
    drawn = noise.uniform((3, 1, 1)).to(images)  # (N, 3, 1, 1)
    side = share**0.5  # of the box, as a fraction of the image's side
    down, right = ((axis + 1) / 2 for axis in pixel_grid(images))  # (H, W), from 0 to 1
    top, left = (1 - side) * drawn[:, 0], (1 - side) * drawn[:, 1]  # (N, 1, 1)
    hidden = (down >= top) & (down <= top + side) & (right >= left) & (right <= left + side)
    grey = low + (high - low) * drawn[:, 2:]  # (N, 1, 1, 1)
    return images.where(~hidden[:, None], grey)
