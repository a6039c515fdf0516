"""The operations that AugMix chains: pixels from 0 to 1 in and out, the identity at strength 0.

Those of AutoAugment that no corruption of ImageNet-C is made of: autocontrast, equalisation,
posterisation and solarisation; and the geometric ones, rotation, shear and translation.
Autocontrast and equalisation, which have no strength in the paper, are blended in by it here.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

GREY_LEVELS = 256  # of grey, for a histogram
MOST_BITS = 4  # that posterisation takes away
TURN, SLANT, MOVE = 30.0, 0.3, 0.33  # of degrees, of a tangent, of an image, at strength 1

Operation = Callable[[Tensor, Tensor], Tensor]  # images (N, C, H, W), strengths (N,) from -1 to 1


def autocontrast(images: Tensor, strengths: Tensor) -> Tensor:
    """Stretch each channel to the whole range; one of a single value stays."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    stretched = torch.where(high > low, (images - low) / (high - low).clamp_min(1e-6), images)
    return torch.lerp(images, stretched, _shaped(strengths.abs()))


def equalise(images: Tensor, strengths: Tensor) -> Tensor:
    """Give each channel a flat histogram: pixels become the fraction that is no brighter."""
    flat = images.flatten(2)  # (N, C, P)
    places = (flat * (GREY_LEVELS - 1)).round().long().clamp(0, GREY_LEVELS - 1)
    counts = torch.zeros(*flat.shape[:2], GREY_LEVELS, device=images.device, dtype=images.dtype)
    below = counts.scatter_add(2, places, torch.ones_like(flat)).cumsum(2)  # (N, C, GREY_LEVELS)
    lowest = below.gather(2, places.amin(2, keepdim=True))
    room = flat.shape[2] - lowest
    found = (below.gather(2, places) - lowest) / room.clamp_min(1)
    equal = torch.where(room > 0, found, flat).reshape(images.shape)
    return torch.lerp(images, equal, _shaped(strengths.abs()))


def posterise(images: Tensor, strengths: Tensor) -> Tensor:
    """Keep fewer bits of each pixel, four at least."""
    bits = (MOST_BITS * strengths.abs()).round()
    steps = _shaped(2 ** (8 - bits)) - 1
    return torch.where(_shaped(bits) > 0, (images * steps).round() / steps, images)


def solarise(images: Tensor, strengths: Tensor) -> Tensor:
    """Invert the pixels above a threshold, which falls with the strength."""
    return torch.where(images > _shaped(1 - strengths.abs()), 1 - images, images)


def rotate(images: Tensor, strengths: Tensor) -> Tensor:
    """Turn by up to 30 degrees."""
    angles = torch.deg2rad(TURN * strengths)
    return _warped(images, angles.cos(), -angles.sin(), angles.sin(), angles.cos())


def sheared(images: Tensor, strengths: Tensor) -> Tensor:
    """Slant rows by up to 0.3."""
    one, none = torch.ones_like(strengths), torch.zeros_like(strengths)
    return _warped(images, one, SLANT * strengths, none, one)


def translate(images: Tensor, strengths: Tensor) -> Tensor:
    """Move sideways by up to a third of the image."""
    one, none = torch.ones_like(strengths), torch.zeros_like(strengths)
    return _warped(images, one, none, none, one, 2 * MOVE * strengths)


PLAIN_OPERATIONS: tuple[Operation, ...] = (autocontrast, equalise, posterise, solarise)
GEOMETRIC_OPERATIONS: tuple[Operation, ...] = (rotate, sheared, translate)


def _warped(
    images: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, right: Tensor | None = None
) -> Tensor:
    """Return images under the maps (a b; c d) and an offset, all (N,)."""
    offset = torch.zeros_like(a) if right is None else right
    rows = torch.stack([a, b, offset]), torch.stack([c, d, torch.zeros_like(a)])  # (3, N) each
    maps = torch.stack(rows).permute(2, 0, 1).to(images)  # (N, 2, 3)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _shaped(values: Tensor) -> Tensor:
    return values[:, None, None, None]  # (N, 1, 1, 1)
