"""Frosted panes, computed: feathers of ice with needles at 60 degrees over a cloudy film.

ImageNet-C takes photographs of frost. These six panes replace them, with a similar brightness,
spread and tint.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.shifts.corruptions.plasma import plasma
from falconcal.shifts.keyed_noise import KeyedNoise

Colour = tuple[float, float, float]

# darkest and brightest colour, feathers on 512 x 512 pixels, their longest, between two needles
PANES: tuple[tuple[Colour, Colour, int, float, float], ...] = (
    ((0.10, 0.42, 0.52), (0.62, 0.80, 0.86), 500, 60.0, 7.0),
    ((0.58, 0.61, 0.66), (0.97, 0.97, 0.99), 900, 90.0, 6.0),
    ((0.52, 0.57, 0.62), (0.99, 0.99, 1.00), 1600, 45.0, 5.0),
    ((0.27, 0.34, 0.40), (0.90, 0.93, 0.96), 1400, 50.0, 5.0),
    ((0.14, 0.18, 0.24), (0.92, 0.95, 0.98), 900, 70.0, 6.0),
    ((0.03, 0.09, 0.13), (0.75, 0.87, 0.90), 420, 130.0, 8.0),
)
TEXTURES = len(PANES)
TOGETHER = 20  # feathers drawn at once
NEEDLES = 1 / math.tan(math.radians(60))


@lru_cache(maxsize=4 * TEXTURES)
def texture(pane: int, size: int, scale: float) -> Tensor:
    """Return a pane drawn at a size (a power of two) and scaled down: (3, side, side)."""
    if scale != 1:
        whole = texture(pane, size, 1)
        return functional.interpolate(whole[None], scale_factor=scale, mode="area")[0]
    dark, bright, count, length, spacing = PANES[pane]
    ice = _film(pane, size)  # (size, size)
    for start in range(0, round(count * (size / 512) ** 2), TOGETHER):
        _draw(
            ice,
            KeyedNoise("frost", pane, 0, torch.arange(start, start + TOGETHER)),
            length,
            spacing,
        )
    low, high = (torch.tensor(colour)[:, None, None] for colour in (dark, bright))
    return low + (high - low) * ice.clamp_(0, 1)


def _film(pane: int, size: int) -> Tensor:
    """Return thin ice, cloudy and grained, from 0 to about 0.5."""
    noise = KeyedNoise("frost film", pane, 0, torch.tensor([0]))
    grain = noise.paired_normal((size, size), stream=99)[0]
    return plasma(noise, size, 2.0)[0] * 0.45 + grain * 0.04


def _draw(ice: Tensor, noise: KeyedNoise, longest: float, spacing: float) -> None:
    """Draw feathers on the pane where they are brighter than it."""
    row, column, turn, length, width, light = noise.paired_uniform((6,)).T[..., None, None]
    reach = math.ceil(0.56 * longest)  # a feather reaches no further from its middle
    places, angle = torch.arange(-reach, reach + 1), 2 * math.pi * turn
    length = longest * (0.3 + 0.7 * length)  # (K, 1, 1), as all of these
    right, down = places, places[:, None]
    ahead = right * angle.cos() + down * angle.sin() + length / 2  # along the quill: (K, S, S)
    aside = (down * angle.cos() - right * angle.sin()).abs()
    feathers = _feather(ahead, aside, length, 0.12 + 0.25 * width, spacing)
    feathers *= 0.45 + 0.55 * light
    for feather, top, left in zip(feathers, row.flatten(), column.flatten(), strict=True):
        _lay(ice, feather, int(top * len(ice)) - reach, int(left * len(ice)) - reach)


def _feather(ahead: Tensor, aside: Tensor, length: Tensor, width: Tensor, spacing: float) -> Tensor:
    """Return feathers along a quill: needles that leave it at 60 degrees, shorter to the tip."""
    root = ahead - aside * NEEDLES  # where a point's needle leaves the quill
    share = (root / length).clamp_(0, 1)
    reach = (share * (1 - share)).sqrt_().mul_(2 * length * width).clamp_(min=1e-3)
    fade = (1 - aside / reach).clamp_(min=0).sqrt_()
    needle = (root / spacing).frac_().sub_(0.5).square_().mul_(4 * 0.65).add_(0.35)
    inside = torch.minimum(ahead, length - ahead).clamp_(0, 1)
    quill = (1 - aside / 1.5).clamp_(min=0).mul_(inside)
    return torch.maximum(fade.mul_(needle), quill)


def _lay(ice: Tensor, feather: Tensor, top: int, left: int) -> None:
    rows = slice(max(top, 0), top + len(feather))
    columns = slice(max(left, 0), left + len(feather))
    window = ice[rows, columns]
    part = feather[rows.start - top :, columns.start - left :]
    torch.maximum(window, part[: len(window), : window.shape[1]], out=window)
