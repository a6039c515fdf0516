"""Edges of grey images, and the distance of each pixel from the nearest one.

Canny, "A computational approach to edge detection", IEEE Transactions on Pattern Analysis and
Machine Intelligence 8, 1986.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.shifts.corruptions.smoothing import filter_axis, indicator, padded

STEEP, FLAT = math.tan(math.radians(67.5)), math.tan(math.radians(22.5))


def canny(images: Tensor, low: float, high: float) -> Tensor:
    """Return a mask of the edges of images (N, 1, H, W) from 0 to 255: ridges of the slope.

    A ridge above ``low`` counts where it is connected with one above ``high``.
    """
    around = padded(images, 1, "replicate")
    right = filter_axis(filter_axis(around, [1, 2, 1], 2), [-1, 0, 1], 3)
    down = filter_axis(filter_axis(around, [-1, 0, 1], 2), [1, 2, 1], 3)
    slope = right.abs() + down.abs()
    ridges = _ridges(slope, right, down).mul_(indicator(torch.gt, slope, low))
    return _connected(ridges * indicator(torch.gt, slope, high), ridges)


def _ridges(slope: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Return 1 where the slope is highest among its neighbours in its own direction, else 0."""
    level, upright = right.abs(), down.abs()
    flat = indicator(torch.lt, upright - level * FLAT, 0.0)
    steep = indicator(torch.gt, upright - level * STEEP, 0.0)
    alike = indicator(
        torch.eq, indicator(torch.lt, right, 0.0) - indicator(torch.lt, down, 0.0), 0.0
    )
    slanted = alike * _peaks(slope, 1, 1) + (1 - alike) * _peaks(slope, 1, -1)
    upwards = steep * _peaks(slope, 1, 0, last=True) + (1 - steep) * slanted
    return flat * _peaks(slope, 0, 1, last=True) + (1 - flat) * upwards


def _peaks(slope: Tensor, down: int, right: int, *, last: bool = False) -> Tensor:
    """Return 1 where the slope is above that of both neighbours on a line, else 0.

    With ``last``, the last of two equal neighbours counts too.
    """
    height, width = slope.shape[2:]
    around = functional.pad(slope, (1, 1, 1, 1))
    before = around[:, :, 1 - down : 1 - down + height, 1 - right : 1 - right + width]
    after = around[:, :, 1 + down : 1 + down + height, 1 + right : 1 + right + width]
    above = indicator(torch.gt, slope - before, 0.0)
    return above * indicator(torch.ge if last else torch.gt, slope - after, 0.0)


def _connected(seeds: Tensor, allowed: Tensor) -> Tensor:
    """Return the allowed pixels that are connected with the seeds, by sides and corners."""
    reached = seeds
    while True:
        wider = _widened(_widened(reached, 2), 3) * allowed
        if torch.equal(wider, reached):
            return reached
        reached = wider


def _widened(planes: Tensor, axis: int) -> Tensor:
    """Return the highest of each value and its two neighbours along an axis."""
    wider, inner = planes.clone(), planes.shape[axis] - 1
    for target, source in ((0, 1), (1, 0)):
        part = wider.narrow(axis, target, inner)
        torch.maximum(part, planes.narrow(axis, source, inner), out=part)
    return wider


def edge_distance(edges: Tensor, limit: int) -> Tensor:
    """Return how far each pixel is from the nearest edge, at most ``limit``: (N, 1, H, W)."""
    width = edges.shape[3]
    upright = _column_distance(edges, limit)
    squares = functional.pad(upright.square_(), (limit, limit), value=float(limit**2))
    nearest = squares[..., limit : limit + width].clone()
    spare = torch.empty_like(nearest)
    for step in range(1, limit):
        left, right = squares[..., limit - step :], squares[..., limit + step :]
        torch.minimum(left[..., :width], right[..., :width], out=spare).add_(step**2)
        torch.minimum(nearest, spare, out=nearest)
    return nearest.sqrt_()


def _column_distance(edges: Tensor, limit: int) -> Tensor:
    """Return the distance along the column, at most ``limit``; steps add up to all lengths."""
    far = (1 - edges) * limit
    reach = 0
    while reach < limit:
        step = min(reach + 1, limit - reach)
        around = functional.pad(far, (0, 0, step, step), value=float(limit)) + step
        height = far.shape[2]
        torch.minimum(far, around[:, :, :height], out=far)
        torch.minimum(far, around[:, :, 2 * step :], out=far)
        reach += step
    return far
