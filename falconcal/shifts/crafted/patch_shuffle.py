"""Patch shuffle: the image is cut into a 4 x 4 grid and some of the patches change places."""

import torch
from torch import Tensor

from falconcal.shifts.crafted.warping import STRENGTHS, check_image_batch
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

PATCHES_PER_SIDE = 4


def patch_shuffle_shift() -> Shift:
    return Shift(
        "patch_shuffle", STRENGTHS, patch_shuffle, "0.1 to 0.9 of 4 x 4 patches change places"
    )


def patch_shuffle(images: Tensor, share: float, noise: KeyedNoise) -> Tensor:
    """Return images (N, C, H, W) with a share of their patches in each other's places.

    Rows and columns left over by the grid stay where they are.
    """
    check_image_batch(images, "patch_shuffle")
    side = [size // PATCHES_PER_SIDE for size in images.shape[2:]]
    inner = images[:, :, : PATCHES_PER_SIDE * side[0], : PATCHES_PER_SIDE * side[1]]
    count, channels = images.shape[:2]
    patches = inner.reshape(count, channels, PATCHES_PER_SIDE, side[0], PATCHES_PER_SIDE, side[1])
    patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (N, 16, C, h, w)
    order = patch_order(noise, share).to(images.device)  # (N, 16)
    rows = torch.arange(len(images), device=images.device)[:, None]
    moved = patches[rows, order].reshape(count, PATCHES_PER_SIDE, PATCHES_PER_SIDE, channels, *side)
    output = images.clone()
    output[:, :, : inner.shape[2], : inner.shape[3]] = moved.permute(0, 3, 1, 4, 2, 5).reshape(
        inner.shape
    )
    return output


def patch_order(noise: KeyedNoise, share: float) -> Tensor:
    """Return which patch comes to each place: (N, 16). A share of them moves round in a ring."""
    patches = PATCHES_PER_SIDE**2
    count = max(2, round(share * patches))
    ring = noise.uniform((patches,)).argsort(dim=1, stable=True)[:, :count]  # (N, count)
    places = torch.arange(patches, device=ring.device).repeat(len(ring), 1)
    return places.scatter(1, ring, ring.roll(1, dims=1))
