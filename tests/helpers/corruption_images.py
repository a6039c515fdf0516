"""Images that look natural, and the corruptions that draw random numbers."""

import numpy
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from falconcal.shifts import SHIFTS, Shift

RANDOM = {
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur", "motion_blur",
    "snow", "frost", "fog", "spatter", "elastic_transform",
}  # fmt: skip


def shift(name: str) -> Shift:
    return SHIFTS[f"corrupt_{name}"]


def natural(size: int, count: int) -> Tensor:
    """Return squares cut from scikit-learn's two photographs and scaled: (N, 3, size, size)."""
    squares = []
    for number in range(count):
        pixels = load_sample_images().images[number % 2]
        top, left = (37 * number) % 200, (71 * number) % 400
        square = Image.fromarray(pixels[top : top + 224, left : left + 224])
        small = numpy.array(square.resize((size, size), Image.Resampling.BOX))
        squares.append(torch.from_numpy(small).permute(2, 0, 1).float() / 255)
    return torch.stack(squares)
