"""The paper's augmentation of CIFAR-10: rotation by 15 degrees, shifts by 10 %, horizontal flips.

A whole batch at once, each image by its own map; pixels outside take the nearest edge pixel.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

DEGREES, SHIFT = 15.0, 0.1


def rotate_translate_flip(images: Tensor, random: torch.Generator) -> Tensor:
    """Return the images varied: up to 15 degrees and 10 % either way, half of them mirrored."""
    drawn = torch.rand(len(images), 4, generator=random) * 2 - 1  # (N, 4) from -1 to 1
    angle, down, across = drawn[:, 0] * math.radians(DEGREES), drawn[:, 1], drawn[:, 2]
    mirror = torch.where(drawn[:, 3] < 0, -1.0, 1.0)
    # the grid runs from -1 to 1, so a share of the width is twice as long in it
    return warped(images, angle, mirror, 2 * SHIFT * down, 2 * SHIFT * across)


def warped(images: Tensor, angle: Tensor, mirror: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Return each image turned (radians), mirrored where -1, and moved: (N, C, H, W)."""
    cosine, sine = angle.cos(), angle.sin()
    maps = torch.stack(
        [
            torch.stack([cosine * mirror, -sine, across], 1),
            torch.stack([sine * mirror, cosine, down], 1),
        ],
        1,
    )  # (N, 2, 3), from positions in the result to positions in the image
    grid = functional.affine_grid(maps.to(images), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
