"""Spatter: drops of water with a bright rim, or specks of mud (Hendrycks & Dietterich, 2019)."""

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.shifts.corruptions.edges import canny, edge_distance
from falconcal.shifts.corruptions.smoothing import gaussian_filtered, indicator, padded, separable
from falconcal.shifts.corruptions.weather import grey
from falconcal.shifts.keyed_noise import KeyedNoise

WATER = (175 / 255, 238 / 255, 238 / 255)  # pale turquoise
MUD = (63 / 255, 42 / 255, 20 / 255)
FAR = 20  # pixels from an edge; there the light on water ends
THIRDS = [1 / 3, 1 / 3, 1 / 3]
LIGHT = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))  # from the upper left


def spatter(
    images: Tensor,
    noise: KeyedNoise,
    mean: float,
    deviation: float,
    smoothing: float,
    threshold: float,
    strength: float,
    mud: float,
) -> Tensor:
    """Return the images with liquid where smoothed noise is above a threshold."""
    raw = noise.paired_normal((1, *images.shape[2:])).mul_(deviation).add_(mean)
    liquid = gaussian_filtered(raw, smoothing)  # (N, 1, H, W)
    if mud:
        cover = gaussian_filtered(indicator(torch.gt, liquid, threshold), strength)
        cover *= indicator(torch.ge, cover, 0.8)
        return images * (1 - cover) + cover * _colour(MUD, images)
    depth = (liquid * indicator(torch.ge, liquid, threshold) * 255).clamp_(0, 255).floor_()
    shine = depth * highlights(depth)
    brightest = shine.amax((2, 3), keepdim=True).clamp(min=1)
    return images + shine / brightest * strength * _colour(WATER, images)


def highlights(depth: Tensor) -> Tensor:
    """Return how the light falls on drops, from 0 to 255, by the distance from their edges."""
    far = edge_distance(canny(depth, 50, 150), FAR)
    near = separable(padded(far, 1, "reflect"), THIRDS).add_(1e-4).floor_()
    even = equalised(near.long())
    lit = padded(even, 1, "reflect")
    rows, columns = depth.shape[2:]
    total = torch.zeros_like(even)
    for down, weights in enumerate(LIGHT):
        for right, weight in enumerate(weights):
            total += lit[:, :, down : down + rows, right : right + columns] * weight
    return separable(padded(total.clamp_(0, 255), 1, "reflect"), THIRDS).round_()


def equalised(values: Tensor) -> Tensor:
    """Return integers from 0 to FAR equalised to 0 to 255, so that all greys are as common."""
    count, pixels = len(values), values[0].numel()
    bins = FAR + 1
    numbers = torch.arange(count, device=values.device)[:, None] * bins
    seen = (values.flatten(1) + numbers).flatten()
    histogram = torch.bincount(seen, minlength=count * bins).reshape(count, bins)
    upto = histogram.cumsum(1)
    lowest = upto.masked_fill(upto == 0, pixels + 1).amin(1, keepdim=True)  # of the first used
    rest = (pixels - lowest).clamp(min=1)
    greys = ((upto - lowest) * (255 / rest.double())).round().clamp(0, 255).float()
    return functional.embedding(seen, greys.reshape(-1, 1)).reshape(values.shape)


def _colour(colour: tuple[float, float, float], images: Tensor) -> Tensor:
    channels = torch.tensor(colour, device=images.device).reshape(1, 3, 1, 1)
    return channels if images.shape[1] == 3 else grey(channels)
