"""Weather: snow, frost, fog, brightness."""

import math

import torch
from torch import Tensor

from falconcal.shifts.corruptions.blur import magnified, motion_blurred
from falconcal.shifts.corruptions.frost import TEXTURES, texture
from falconcal.shifts.corruptions.plasma import plasma
from falconcal.shifts.corruptions.smoothing import indicator
from falconcal.shifts.keyed_noise import KeyedNoise

GREY_SHARES = (0.299, 0.587, 0.114)  # of red, green and blue in grey


def brightness(images: Tensor, noise: KeyedNoise, added: float) -> Tensor:  # noqa: ARG001
    """Return x V' / V with a higher value V, hue and saturation the same; black becomes grey."""
    value = images.amax(1, keepdim=True)  # (N, 1, H, W)
    brighter = (value + added).clamp_(max=1)
    black = indicator(torch.eq, value, 0.0)
    return images * (brighter / (value + black)) + brighter * black


def fog(images: Tensor, noise: KeyedNoise, thickness: float, decay: float) -> Tensor:
    """Return the images behind a plasma fractal, scaled back to their brightest value."""
    height, width = images.shape[2:]
    clouds = plasma(noise, 1 << (max(height, width) - 1).bit_length(), decay)
    clouds = clouds[:, None, :height, :width] * thickness
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + clouds) * (brightest / (brightest + thickness))


def snow(
    images: Tensor,
    noise: KeyedNoise,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    motion: float,
    kept: float,
) -> Tensor:
    """Return the images whitened, plus the same flakes twice, once turned by 180 degrees."""
    height, width = images.shape[2:]
    flakes = noise.paired_normal((1, height, width), stream=0).mul_(deviation).add_(mean)
    flakes = magnified(flakes, zoom)
    flakes = (flakes * indicator(torch.ge, flakes, threshold)).clamp_(0, 1)
    angles = noise.paired_uniform((1,), stream=1)[:, 0] * 90 - 135
    fallen = motion_blurred(flakes, angles, int(radius), motion).mul_(255).round_().div_(255)
    whitened = torch.maximum(images, grey(images) * 1.5 + 0.5)
    return images * kept + whitened * (1 - kept) + (fallen + fallen.flip(2, 3))


def grey(images: Tensor) -> Tensor:
    """Return the luma: (N, C, H, W) -> (N, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = (
        images[:, place : place + 1] * share for place, share in enumerate(GREY_SHARES)
    )
    return red + green + blue


def frost(
    images: Tensor, noise: KeyedNoise, image_share: float, frost_share: float, scale: float
) -> Tensor:
    """Return each image behind a piece of one of six frosted panes."""
    height, width = images.shape[2:]
    size = max(512, 1 << (math.ceil(1.1 * max(height, width) / scale) - 1).bit_length())
    chances = noise.paired_uniform((3,)).tolist()  # pane, top, left
    panes = torch.stack(
        [_cut(texture(int(pane * TEXTURES), size, scale), top, left, height, width)
         for pane, top, left in chances]
    ).to(images.device)  # (N, 3, H, W)  # fmt: skip
    panes = panes if images.shape[1] == 3 else grey(panes)
    return images * image_share + panes * frost_share


def _cut(pane: Tensor, top: float, left: float, height: int, width: int) -> Tensor:
    """Return a piece of a pane; its corner is given as fractions of the possible range."""
    row, column = int(top * (pane.shape[1] - height)), int(left * (pane.shape[2] - width))
    return pane[:, row : row + height, column : column + width]
