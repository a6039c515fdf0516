"""Digital changes: contrast, saturation, elastic transform, pixelation."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.shifts.corruptions.smoothing import indicator, smoothing_matrix
from falconcal.shifts.keyed_noise import KeyedNoise

TINY = 1e-12


def contrast(images: Tensor, noise: KeyedNoise, kept: float) -> Tensor:  # noqa: ARG001
    """Return the images with smaller distances from the mean of each channel."""
    mean = exact_mean(images)  # (N, C, 1, 1)
    return (images - mean).mul_(kept).add_(mean)


def exact_mean(images: Tensor) -> Tensor:
    """Return the mean of each channel, the same bits in any order of summation.

    Multiples of 2^-30 add up without rounding in float64, up to 8 million pixels.
    """
    steps = (images * 2.0**30).double().round_()
    return steps.sum((2, 3), keepdim=True).div_(2.0**30 * images[0, 0].numel()).float()


def saturate(images: Tensor, noise: KeyedNoise, factor: float, offset: float) -> Tensor:  # noqa: ARG001
    """Return the images with another saturation, the same hue and value; grey ones unchanged.

    With value V and lowest channel m, saturation is S = (V - m) / V, and a channel x becomes
    V - (V - x) S' / S. A pixel without hue counts as red, as its hue is 0 by convention.
    """
    if images.shape[1] == 1:
        return images
    value = images.amax(1, keepdim=True)  # (N, 1, H, W)
    spread = value - images.amin(1, keepdim=True)
    saturation = (spread / value.clamp(min=TINY)).mul_(factor).add_(offset).clamp_(0, 1)
    wanted = saturation.mul_(value)  # the spread after the change
    output = value - (value - images).mul_(wanted / spread.clamp(min=TINY))
    output[:, 1:] -= indicator(torch.eq, spread, 0.0) * wanted
    return output


def elastic_transform(
    images: Tensor, noise: KeyedNoise, amplitude: float, deviation: float, jitter: float
) -> Tensor:
    """Return the images under a random affine map, then moved by a smooth random field."""
    height, width = images.shape[2:]
    corners = noise.paired_uniform((3, 2), stream=0).mul_(2).sub_(1).mul_(jitter)  # (N, 3, 2)
    images = resampled(images, affine_points(corners, height, width), mirror_pixel=False)
    if amplitude == 0:
        return images
    field = noise.paired_uniform((2, height, width), stream=1).mul_(2).sub_(1)
    moves = smooth_field(field, deviation).mul_(amplitude)  # (N, 2, H, W): right, down
    return resampled(images, moves.add_(_grid(height, width, images.device)), mirror_pixel=True)


def affine_points(corners: Tensor, height: int, width: int) -> Tensor:
    """Return where each pixel comes from when three corners of a square move: (N, 2, H, W)."""
    half = min(height, width) // 3
    middle = torch.tensor([width // 2, height // 2], device=corners.device)  # (2,)
    # the square's corners are the middle + half * (1, 1), (1, -1) and (-1, -1), as (right, down)
    right = (corners[:, 1] - corners[:, 2]) / (2 * half)  # (N, 2): the map's first column, less 1
    down = (corners[:, 0] - corners[:, 1]) / (2 * half)
    a, b = right[:, :1, None] + 1, down[:, :1, None]  # (N, 1, 1)
    c, d = right[:, 1:, None], down[:, 1:, None] + 1
    moved_middle = middle + (corners[:, 0] + corners[:, 2]) / 2  # (N, 2)
    x, y = (_grid(height, width, corners.device) - moved_middle[:, :, None, None]).unbind(1)
    determinant = a * d - b * c
    source = torch.stack([(d * x - b * y) / determinant, (a * y - c * x) / determinant], 1)
    return source + middle[:, None, None]


def _grid(height: int, width: int, device: torch.device) -> Tensor:
    """Return the coordinates of each pixel as (right, down): (2, H, W)."""
    down, right = torch.meshgrid(
        torch.arange(height, device=device), torch.arange(width, device=device), indexing="ij"
    )
    return torch.stack([right, down]).float()


def smooth_field(field: Tensor, deviation: float) -> Tensor:
    """Return fields smoothed one by one, so that the batch changes no bits: (N, 2, H, W)."""
    height, width = field.shape[2:]
    rows = smoothing_matrix(height, deviation, 3.0, field.device)
    columns = smoothing_matrix(width, deviation, 3.0, field.device)
    planes = [rows @ plane.clone() @ columns.T for plane in field.flatten(0, 1)]
    return torch.stack(planes).reshape(field.shape)


def resampled(images: Tensor, points: Tensor, mirror_pixel: bool) -> Tensor:
    """Return the images interpolated bilinearly at points (N, 2, H, W), mirrored outside.

    The mirror is at the outer side of the edge pixels (``mirror_pixel``) or at their middle.
    """
    height, width = images.shape[2:]
    sizes = torch.tensor([width, height], device=points.device)[:, None, None]
    unit = (2 * points + 1) / sizes - 1 if mirror_pixel else 2 * points / (sizes - 1) - 1
    return functional.grid_sample(
        images,
        unit.permute(0, 2, 3, 1),
        padding_mode="reflection",
        align_corners=not mirror_pixel,
    )


def pixelate(images: Tensor, noise: KeyedNoise, kept: float) -> Tensor:  # noqa: ARG001
    """Return the images with their pixels averaged in blocks."""
    height, width = images.shape[2:]
    planes = images.reshape(-1, height, width)
    fewer = block_means(planes, 1, int(height * kept))
    wide = _columns_in_blocks(fewer.reshape(-1, width), int(width * kept))
    tall = wide.reshape(len(planes), -1, width).index_select(
        1, _nearest(int(height * kept), height, images.device)
    )
    return tall.reshape(images.shape)


def _columns_in_blocks(rows: Tensor, blocks: int) -> Tensor:
    """Return rows (R, W) with their values averaged in blocks."""
    width = rows.shape[1]
    if width % 8 == 0 and width % blocks == 0 and 8 % (width // blocks) == 0:
        # blocks of 2, 4 or 8: eight columns at a time by one small product
        places = torch.arange(8, device=rows.device) // (width // blocks)
        square = (places[:, None] == places) * (blocks / width)  # (8, 8)
        return torch.mm(rows.reshape(-1, 8), square).reshape(rows.shape)
    # indexing rows is much faster than indexing columns, so the plane is transposed and back
    turned = block_means(rows.T.contiguous(), 0, blocks)
    return turned.index_select(0, _nearest(blocks, width, rows.device)).T.contiguous()


def block_means(planes: Tensor, axis: int, blocks: int) -> Tensor:
    """Return the means of ``blocks`` blocks of neighbours along an axis."""
    first, *others = _block_places(planes.shape[axis], blocks, planes.device)
    weights = _block_weights(planes.shape[axis], blocks, planes.device)  # (blocks,) each
    column = [-1 if place == axis else 1 for place in range(planes.ndim)]
    total = planes.index_select(axis, first).mul_(weights[0].reshape(column))
    for places, weight in zip(others, weights[1:], strict=True):
        total += planes.index_select(axis, places).mul_(weight.reshape(column))
    return total


@lru_cache(maxsize=64)
def _block_places(size: int, blocks: int, device: torch.device) -> list[Tensor]:
    """Return the first, second, ... pixel of each block: those whose middle lies in its span."""
    first, lengths = _blocks(size, blocks)
    return [(first + lengths.clamp(max=place + 1) - 1).to(device) for place in range(lengths.max())]


@lru_cache(maxsize=64)
def _block_weights(size: int, blocks: int, device: torch.device) -> list[Tensor]:
    _, lengths = _blocks(size, blocks)
    return [((place < lengths) / lengths).float().to(device) for place in range(lengths.max())]


def _blocks(size: int, blocks: int) -> tuple[Tensor, Tensor]:
    edges = torch.arange(blocks + 1, dtype=torch.float64) * (size / blocks)
    first = (edges + 0.5).floor().long()  # (blocks + 1,)
    return first[:-1], first[1:] - first[:-1]


@lru_cache(maxsize=64)
def _nearest(blocks: int, size: int, device: torch.device) -> Tensor:
    """Return the block that each pixel's middle lies in."""
    middles = (torch.arange(size, dtype=torch.float64) + 0.5) * (blocks / size)
    return middles.floor().long().to(device)
