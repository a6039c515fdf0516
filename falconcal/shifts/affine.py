"""The paper's nine affine shifts, each a linear map of the pixels, applied to a batch at once.

They follow keras-preprocessing 1.1.2, which the paper's numbers contain: bilinear, outside pixels
take the nearest edge pixel, "x" is the row axis, and the centre lies at size/2 + 0.5, one pixel off
the true one, (size - 1)/2. The centre is a parameter.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal

import numpy
import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

Centre = Literal["keras", "middle"]
Map = tuple[numpy.ndarray, numpy.ndarray]  # (2, 2) about the centre, and an offset (2,)

IMAGES_AT_ONCE = 128  # images
TENS = tuple(float(degrees) for degrees in range(0, 100, 10))
BACKWARDS = (0.0, *(360.0 - degrees for degrees in TENS[1:]))
PIXEL_OFFSETS = tuple(float(pixels) for pixels in range(0, 20, 2))
ZOOMS = tuple(round(1.0 - level / 10, 1) for level in range(10))
ALIKE = (
    ("rot_left", "rot_right"),
    ("xshift", "yshift", "xyshift"),
    ("xzoom", "yzoom", "xyzoom"),
)


def affine_shifts(centre: Centre = "keras") -> dict[str, Shift]:
    """Return the paper's nine affine shifts of images by name, in the paper's order.

    Args:
        centre: The point that images are turned about and zoomed to: ``keras`` is that of the
            paper's experiments, one pixel off the ``middle``.

    Returns:
        The shifts; images (N, channels, H, W) in and out.

    Example:
        >>> from falconcal.shifts import affine_shifts
        >>> affine_shifts("middle")["rot_right"].strengths[:3]
        (0.0, 10.0, 20.0)
    """
    return {
        name: Shift(
            name,
            strengths,
            partial(warp, matrix_of=matrix_of, centre=centre),
            summary,
            kin=_kin(name),
        )
        for name, strengths, matrix_of, summary in AFFINE_FAMILIES
    }


def _kin(name: str) -> tuple[str, ...]:
    """Return the shifts that do the same in another direction."""
    return tuple(one for group in ALIKE if name in group for one in group if one != name)


def warp(
    images: Tensor,
    strength: float,
    noise: KeyedNoise | None = None,  # noqa: ARG001 - a warp is not random
    *,
    matrix_of: Callable[[float], Map],
    centre: Centre = "keras",
) -> Tensor:
    """Return the images warped: (N, channels, H, W) -> (N, channels, H, W)."""
    if images.ndim != 4:
        raise UserError(f"expected images (N, channels, height, width), got {images.ndim} axes.")
    height, width = images.shape[2:]
    matrix = _sampling_matrix(matrix_of, strength, height, width, centre).to(images)
    pixels = images.reshape(-1, height * width)  # (N * channels, H * W)
    warped = torch.empty_like(pixels)
    # sparse @ dense runs along the images, and a chunk of them stays in the processor's cache:
    # three times faster than all at once
    for source, target in zip(
        torch.split(pixels, IMAGES_AT_ONCE), torch.split(warped, IMAGES_AT_ONCE), strict=True
    ):
        target.copy_(torch.mm(matrix, source.T.contiguous()).T)
    return warped.reshape(images.shape)


def rotation(degrees: float) -> Map:
    cosine, sine = numpy.cos(numpy.deg2rad(degrees)), numpy.sin(numpy.deg2rad(degrees))
    return numpy.array([[cosine, -sine], [sine, cosine]]), numpy.zeros(2)


def shear(degrees: float) -> Map:
    cosine, sine = numpy.cos(numpy.deg2rad(degrees)), numpy.sin(numpy.deg2rad(degrees))
    return numpy.array([[1.0, -sine], [0.0, cosine]]), numpy.zeros(2)


def translation(pixels: float, axes: tuple[float, float]) -> Map:
    return numpy.eye(2), pixels * numpy.array(axes)


def zoom(factor: float, axes: tuple[bool, bool]) -> Map:
    return numpy.diag([factor if zoomed else 1.0 for zoomed in axes]), numpy.zeros(2)


AFFINE_FAMILIES: list[tuple[str, tuple[float, ...], Callable[[float], Map], str]] = [
    ("rot_left", BACKWARDS, rotation, "rotation by 0, 350, ..., 270 degrees"),
    ("rot_right", TENS, rotation, "rotation by 0, 10, ..., 90 degrees"),
    (
        "xshift",
        PIXEL_OFFSETS,
        partial(translation, axes=(1, 0)),
        "rows moved by 0, 2, ..., 18 pixels",
    ),
    (
        "yshift",
        PIXEL_OFFSETS,
        partial(translation, axes=(0, 1)),
        "columns moved by 0, 2, ..., 18 pixels",
    ),
    (
        "xyshift",
        PIXEL_OFFSETS,
        partial(translation, axes=(1, 1)),
        "both moved by 0, 2, ..., 18 pixels",
    ),
    ("shear", TENS, shear, "shear by 0, 10, ..., 90 degrees"),
    ("xzoom", ZOOMS, partial(zoom, axes=(True, False)), "rows magnified, 1.0 to 0.1 kept"),
    ("yzoom", ZOOMS, partial(zoom, axes=(False, True)), "columns magnified, 1.0 to 0.1 kept"),
    ("xyzoom", ZOOMS, partial(zoom, axes=(True, True)), "both magnified, 1.0 to 0.1 kept"),
]


@lru_cache(maxsize=512)
def _sampling_matrix(
    matrix_of: Callable[[float], Map], strength: float, height: int, width: int, centre: Centre
) -> Tensor:
    """Return the sparse matrix that maps input pixels to output pixels: (H * W, H * W)."""
    rows, columns = _source_points(*matrix_of(strength), height, width, centre)
    low_row, row_share = _between(rows, height)
    low_column, column_share = _between(columns, width)
    corners = []
    for row, row_weight in ((low_row, 1 - row_share), (low_row + 1, row_share)):
        for column, weight in ((low_column, 1 - column_share), (low_column + 1, column_share)):
            source = row.clip(max=height - 1) * width + column.clip(max=width - 1)
            corners.append((source, row_weight * weight))
    return _sparse(corners, height * width)


def _source_points(
    matrix: numpy.ndarray, offset: numpy.ndarray, height: int, width: int, centre: Centre
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return where each output pixel comes from: rows (H * W,) and columns (H * W,)."""
    size = numpy.array([height, width], dtype=float)
    middle = size / 2 + 0.5 if centre == "keras" else (size - 1) / 2
    grid = numpy.indices((height, width)).reshape(2, -1)  # (2, H * W)
    rows, columns = matrix @ (grid - middle[:, None] + offset[:, None]) + middle[:, None]
    return rows, columns


def _between(positions: numpy.ndarray, size: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the pixel below each position, held inside the image, and the share of the next."""
    inside = positions.clip(0, size - 1)
    low = numpy.floor(inside).astype(int)
    return low, inside - low


def _sparse(corners: list[tuple[numpy.ndarray, numpy.ndarray]], pixels: int) -> Tensor:
    targets = numpy.tile(numpy.arange(pixels), len(corners))
    sources = numpy.concatenate([source for source, _ in corners])
    weights = torch.from_numpy(numpy.concatenate([weight for _, weight in corners]))
    indices = torch.from_numpy(numpy.stack([targets, sources]))
    kept = weights > 0
    matrix = torch.sparse_coo_tensor(
        indices[:, kept], weights[kept], (pixels, pixels), check_invariants=True
    )
    return matrix.coalesce()
