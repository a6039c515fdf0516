"""Plain image shifts: Gaussian noise, Gaussian blur and contrast, each from clean to unreadable.

None of them is among the paper's nine, so settings may be chosen on them (on validation images).
Like the nine they lead step by step from clean to unreadable: in results/digits/rows.parquet the
accuracy of a plain LeNet falls from 0.97 to between 0.20 and 0.28 at the last strength of each.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.data import Bounds
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

UNIT = Bounds(0.0, 1.0)  # the range of images here
ADVICE = "this shift is made for images in that range, so scale the data to it"


def noise_blur_contrast_shifts() -> dict[str, Shift]:
    """Return the three shifts by name; images in [0, 1] in and out."""
    shifts = (
        Shift(
            "gaussian_noise",
            (0.0, 0.3, 0.6, 1.0, 1.5, 3.0),
            gaussian_noise,
            "noise of deviation 0.3 to 3 on every pixel",
        ),
        Shift(
            "gaussian_blur",
            (0.0, 2.0, 3.0, 4.0, 6.0, 10.0),
            gaussian_blur,
            "blur of deviation 2 to 10 pixels",
        ),
        Shift(
            "contrast",
            (1.0, 0.3, 0.2, 0.1, 0.05, 0.02),
            contrast,
            "distance from the image's mean kept at 0.3 to 0.02",
        ),
    )
    return {shift.name: shift for shift in shifts}


def gaussian_noise(images: Tensor, deviation: float, noise: KeyedNoise) -> Tensor:
    UNIT.check(images, ADVICE)
    return UNIT.clip(images + deviation * noise.normal(tuple(images.shape[1:])).to(images))


def gaussian_blur(images: Tensor, deviation: float, noise: KeyedNoise) -> Tensor:  # noqa: ARG001
    UNIT.check(images, ADVICE)
    radius = min(math.ceil(3 * deviation), images.shape[2] - 1, images.shape[3] - 1)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.softmax(-(offsets**2) / (2 * deviation**2), 0)  # normalised Gaussian
    padded = functional.pad(images, (radius,) * 4, mode="reflect")
    return UNIT.clip(_smooth(_smooth(padded, kernel, 2), kernel, 3))


def _smooth(images: Tensor, kernel: Tensor, axis: int) -> Tensor:
    """Return the weighted sum of moved copies; a convolution's bits depend on the batch's size."""
    size = images.shape[axis] - len(kernel) + 1
    total = torch.zeros_like(images.narrow(axis, 0, size))
    for place, weight in enumerate(kernel.tolist()):
        total += weight * images.narrow(axis, place, size)
    return total


def contrast(images: Tensor, kept: float, noise: KeyedNoise) -> Tensor:  # noqa: ARG001
    mean = images.mean((1, 2, 3), keepdim=True)  # (N, 1, 1, 1)
    return mean + kept * (images - mean)
