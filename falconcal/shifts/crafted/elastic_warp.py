"""Elastic warp: every pixel moves by a smooth random field that holds no affine map.

Simard, Steinkraus & Platt, "Best practices for convolutional neural networks", ICDAR 2003, less
the affine part of the field, which is taken out by least squares: what is left neither moves,
turns, shears nor stretches the image as a whole.
"""

import torch
from torch import Tensor

from falconcal.shifts.corruptions.smoothing import smoothing_matrix
from falconcal.shifts.crafted.warping import STRENGTHS, check_image_batch, pixel_grid, read_at
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

SMOOTHNESS = 0.12  # deviation of the smoothing kernel, as a fraction of the image's side
# root mean square at strength 1, in units of half the image's side
LARGEST_DISPLACEMENT = 0.36


def elastic_warp_shift() -> Shift:
    return Shift(
        "elastic_warp",
        STRENGTHS,
        elastic_warp,
        "a smooth random field without its affine part moves the pixels",
    )


def elastic_warp(images: Tensor, strength: float, noise: KeyedNoise) -> Tensor:
    """Return images (N, C, H, W) whose pixels a smooth field has moved."""
    check_image_batch(images, "elastic_warp")
    down, right = pixel_grid(images)
    moves = strength * LARGEST_DISPLACEMENT * unit_fields(noise, *images.shape[2:])  # (N, 2, H, W)
    return read_at(images, down + moves[:, 0], right + moves[:, 1])


def unit_fields(noise: KeyedNoise, height: int, width: int) -> Tensor:
    """Return smooth fields of root mean square 1 without an affine part: (N, 2, H, W)."""
    fields = noise.paired_normal((2, height, width))  # (N, 2, H, W)
    rows = smoothing_matrix(height, SMOOTHNESS * height, 3.0, fields.device)
    columns = smoothing_matrix(width, SMOOTHNESS * width, 3.0, fields.device)
    # one plane at a time, so that the size of a batch changes no bits
    planes = [rows @ plane @ columns.T for plane in fields.flatten(0, 1)]
    residual = without_affine_part(torch.stack(planes)).reshape(fields.shape)
    size = residual.square().mean((1, 2, 3), keepdim=True).sqrt()  # (N, 1, 1, 1)
    return residual / size.clamp_min(1e-12)


def without_affine_part(planes: Tensor) -> Tensor:
    """Return planes (P, H, W) less their least-squares fit by 1, row and column.

    On a full grid the three are orthogonal once centred, so each coefficient is one mean.
    """
    height, width = planes.shape[1:]
    down = torch.linspace(-1, 1, height, device=planes.device)[:, None]  # (H, 1)
    right = torch.linspace(-1, 1, width, device=planes.device)[None]  # (1, W)
    left = planes - planes.mean((1, 2), keepdim=True)
    for axis in (down, right):
        slope = (left * axis).mean((1, 2), keepdim=True) / axis.square().mean()
        left = left - slope * axis
    return left
