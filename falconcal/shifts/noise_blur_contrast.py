"""Image shifts besides the paper's: Gaussian noise, Gaussian blur and contrast.

None of them is among the paper's nine, so settings may be chosen on them (on validation images).
Like the nine they lead step by step from clean to unreadable: in results/digits/rows.parquet the
accuracy of a plain LeNet falls from 0.97 to between 0.20 and 0.28 at the last strength of each.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.data.images import PIXEL_BOUNDS
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import RANGE_ADVICE, Shift


def noise_blur_contrast_shifts() -> dict[str, Shift]:
    """Return Gaussian noise, Gaussian blur and contrast by name, from clean to unreadable.

    Returns:
        The three shifts; images (N, channels, H, W) from 0 to 1 in and out.

    Example:
        >>> from falconcal.shifts import noise_blur_contrast_shifts
        >>> list(noise_blur_contrast_shifts())
        ['gaussian_noise', 'gaussian_blur', 'contrast']
    """
    shifts = (
        Shift(
            "gaussian_noise",
            (0.0, 0.3, 0.6, 1.0, 1.5, 3.0),
            add_gaussian_noise,
            "noise of deviation 0.3 to 3 on every pixel",
        ),
        Shift(
            "gaussian_blur",
            (0.0, 2.0, 3.0, 4.0, 6.0, 10.0),
            blur_gaussian,
            "blur of deviation 2 to 10 pixels",
        ),
        Shift(
            "contrast",
            (1.0, 0.3, 0.2, 0.1, 0.05, 0.02),
            reduce_contrast,
            "distance from the image's mean kept at 0.3 to 0.02",
        ),
    )
    return {shift.name: shift for shift in shifts}


def add_gaussian_noise(images: Tensor, deviation: float, noise: KeyedNoise) -> Tensor:
    PIXEL_BOUNDS.check(images, RANGE_ADVICE)
    return PIXEL_BOUNDS.clip(images + deviation * noise.normal(tuple(images.shape[1:])).to(images))


def blur_gaussian(images: Tensor, deviation: float, noise: KeyedNoise) -> Tensor:  # noqa: ARG001
    PIXEL_BOUNDS.check(images, RANGE_ADVICE)
    radius = min(math.ceil(3 * deviation), images.shape[2] - 1, images.shape[3] - 1)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.softmax(-(offsets**2) / (2 * deviation**2), 0)  # normalised Gaussian
    padded = functional.pad(images, (radius,) * 4, mode="reflect")
    return PIXEL_BOUNDS.clip(_smooth(_smooth(padded, kernel, 2), kernel, 3))


def _smooth(images: Tensor, kernel: Tensor, axis: int) -> Tensor:
    """Return the weighted sum of moved copies; a convolution's bits depend on the batch's size."""
    size = images.shape[axis] - len(kernel) + 1
    total = torch.zeros_like(images.narrow(axis, 0, size))
    for offset, weight in enumerate(kernel.tolist()):
        total += weight * images.narrow(axis, offset, size)
    return total


def reduce_contrast(images: Tensor, kept: float, noise: KeyedNoise) -> Tensor:  # noqa: ARG001
    mean = images.mean((1, 2, 3), keepdim=True)  # (N, 1, 1, 1)
    return mean + kept * (images - mean)
