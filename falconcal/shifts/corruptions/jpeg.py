"""JPEG without its lossless coding: cosine transform, quantisation and back.

As in the standard (ITU-T T.81, 1992) with the usual tables and qualities of the Independent JPEG
Group, colour at half the resolution, and its smooth interpolation on the way back. Values between
the steps are not rounded to bytes, so pixels differ from a JPEG file's by less than one grey value
on average.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.shifts.keyed_noise import KeyedNoise

LUMA_SHARES = (0.299, 0.587, 0.114)  # of red, green and blue in Y
# quantisation tables at quality 50 (T.81, annex K)
LUMA_STEPS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMA_STEPS = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *(((99,) * 8,) * 4),
)


def jpeg_compression(images: Tensor, noise: KeyedNoise, quality: float) -> Tensor:  # noqa: ARG001
    """Return the images after JPEG compression of a quality: (N, C, H, W)."""
    height, width = images.shape[2:]
    if height % 16 or width % 16:
        images = functional.pad(images, (0, -width % 16, 0, -height % 16), mode="replicate")
    if images.shape[1] == 1:
        grey = _luma((images[:, 0] * 255).round_(), int(quality)).div_(255)
        return grey[:, None, :height, :width]
    planes = recoloured(images, _parts(images.device)).round_()  # (N, 3, H, W): Y, Cr, Cb
    planes[:, 0] = _luma(planes[:, 0], int(quality))
    planes[:, 1:] = _chroma(planes[:, 1:], (height, width), int(quality))
    colours = recoloured(planes, _parts(images.device, inverse=True))
    return colours[:, :, :height, :width]


def recoloured(images: Tensor, matrix: Tensor) -> Tensor:
    """Return other mixtures of the channels, matrix (3, 3) times each pixel: (N, 3, H, W)."""
    return (matrix @ images.flatten(2)).reshape(images.shape)


@lru_cache(maxsize=8)
def _parts(device: torch.device, inverse: bool = False) -> Tensor:
    """Return the matrix from red, green and blue of white 1 to Y, Cr and Cb of 255: (3, 3)."""
    luma = torch.tensor(LUMA_SHARES, dtype=torch.float64)
    red, _, blue = torch.eye(3, dtype=torch.float64)
    redness, blueness = (red - luma) / (2 - 2 * luma[0]), (blue - luma) / (2 - 2 * luma[2])
    matrix = 255 * torch.stack([luma, redness, blueness])
    return (matrix.inverse() if inverse else matrix).float().to(device)


def _luma(planes: Tensor, quality: int) -> Tensor:
    """Return grey planes (N, H, W) after quantisation; the standard centres them on 128."""
    basis = cosines(planes.device)
    coefficients = forward(planes - 128, basis)
    quantised(coefficients, _steps(planes.shape[2], quality, planes.device)[:1])
    return forward(coefficients, basis.T).add_(128)


def _chroma(planes: Tensor, size: tuple[int, int], quality: int) -> Tensor:
    """Return planes (N, 2, H, W) of Cr and Cb, held at half the resolution."""
    coefficients = forward(planes.flatten(0, 1), half_cosines(planes.device))
    steps = _steps(coefficients.shape[2], quality, planes.device)[1:]
    quantised(coefficients, steps)
    small = forward(coefficients, cosines(planes.device).T)  # (2 N, H / 2, W / 2)
    height, width = -(-size[0] // 2), -(-size[1] // 2)
    if small.shape[1:] != (height, width):  # outside, the edge is repeated
        small[:, height:] = small[:, height - 1 : height]
        small[:, :, width:] = small[:, :, width - 1 : width]
    return upsampled_rows(upsampled_columns(small)).reshape(planes.shape)


def forward(planes: Tensor, basis: Tensor) -> Tensor:
    """Return basis X basis^T of every square of the planes: (N, H, W) -> (N, H', W')."""
    count, height, width = planes.shape
    rows, columns = basis.shape
    upright = basis @ planes.reshape(-1, columns, width)  # (N * squares, rows, W)
    return (upright.reshape(-1, columns) @ basis.T).reshape(count, height * rows // columns, -1)


@lru_cache(maxsize=4)
def cosines(device: torch.device) -> Tensor:
    """Return the orthonormal cosine transform of eight values: (8, 8), frequencies down."""
    frequency, place = torch.arange(8.0)[:, None], torch.arange(8.0)
    basis = torch.cos(math.pi / 8 * frequency * (place + 0.5)) / 2
    basis[0] /= math.sqrt(2)
    return basis.to(device)


@lru_cache(maxsize=4)
def half_cosines(device: torch.device) -> Tensor:
    """Return the transform of sixteen values averaged to eight: (8, 16)."""
    halves = torch.eye(8, device=device).repeat_interleave(2, 1) / 2
    return cosines(device) @ halves


def quantised(coefficients: Tensor, steps: Tensor) -> None:
    """Round coefficients (N K, H, W) to steps (K, 8, W), in place."""
    kinds, rows, width = steps.shape
    squares = coefficients.view(-1, kinds, coefficients.shape[1] // rows, rows, width)
    squares.div_(steps[:, None]).round_().mul_(steps[:, None])


@lru_cache(maxsize=64)
def _steps(width: int, quality: int, device: torch.device) -> Tensor:
    """Return the steps of Y, Cr and Cb across a plane: (3, 8, W)."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    tables = torch.tensor([LUMA_STEPS, CHROMA_STEPS, CHROMA_STEPS])
    whole = ((tables * scale + 50) // 100).clamp(1, 255).float()
    return whole.repeat(1, 1, width // 8).to(device)


def upsampled_rows(planes: Tensor) -> Tensor:
    """Return twice the rows: three quarters of the nearest, one of the next: (N, 2 H, W)."""
    count, height, width = planes.shape
    near = planes * 0.75
    rows = torch.empty(count, height, 2, width, device=planes.device)
    torch.add(near[:, 1:], planes[:, :-1], alpha=0.25, out=rows[:, 1:, 0])
    torch.add(near[:, :-1], planes[:, 1:], alpha=0.25, out=rows[:, :-1, 1])
    rows[:, 0, 0], rows[:, -1, 1] = planes[:, 0], planes[:, -1]
    return rows.flatten(1, 2)


def upsampled_columns(planes: Tensor) -> Tensor:
    """Return twice the columns likewise, eight to sixteen by one small product: (N, H, 2 W)."""
    around = functional.pad(planes[:, None], (1, 1, 0, 0), mode="replicate")[:, 0]
    windows = around.unfold(2, 10, 8)  # (N, H, W / 8, 10)
    spread = _spread(planes.device)  # (10, 16)
    return (windows.reshape(-1, 10) @ spread).reshape(*planes.shape[:2], -1)


@lru_cache(maxsize=4)
def _spread(device: torch.device) -> Tensor:
    spread = torch.zeros(10, 16)
    for place in range(16):
        near = place // 2 + 1
        spread[near, place] = 0.75
        spread[near + (1 if place % 2 else -1), place] = 0.25
    return spread.to(device)
