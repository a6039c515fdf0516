"""scikit-learn's 1,797 real handwritten digits, resized from 8x8 to 28x28 in [0, 1].

The data (E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI 1998, its test
part) ships with scikit-learn, so nothing is downloaded.
"""

import numpy
import torch
from torch.nn import functional

from falconcal.data.bounds import Bounds
from falconcal.data.dataset import Dataset
from falconcal.data.part import Examples

SIZE = 28
TEST, VALIDATION = 397, 200


def load_digits_dataset() -> Dataset:
    """Return the digits with their fixed, stratified split: 1,200 / 200 / 397."""
    from sklearn.datasets import load_digits  # slow to import: for those who load the digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels.astype(numpy.float32) / 16).reshape(-1, 1, 8, 8)
    # bilinear stays within [0, 1]; bicubic would overshoot and need a clip
    images = functional.interpolate(images, (SIZE, SIZE), mode="bilinear", align_corners=False)
    classes, bounds = tuple(str(digit) for digit in range(10)), Bounds(0.0, 1.0)
    train, validation, test = (
        Examples(images[part], torch.from_numpy(labels[part]).long(), bounds, classes)
        for part in split_digits(labels)
    )
    return Dataset("digits", "image", classes, bounds, train, validation, test)


def split_digits(labels: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Return the indices of the three parts, the same on every machine."""
    from sklearn.model_selection import train_test_split

    everyone = numpy.arange(len(labels))
    rest, test = train_test_split(everyone, test_size=TEST, stratify=labels, random_state=0)
    train, validation = train_test_split(
        rest, test_size=VALIDATION, stratify=labels[rest], random_state=0
    )
    return train, validation, test
