"""USPS, 9,298 digits from envelopes, 16x16 grey, framed as MNIST's: a natural shift for its models.

J. Hull, IEEE PAMI 16, 1994. The files of LIBSVM's collection (``usps.bz2``, ``usps.t.bz2``), those
of "The Elements of Statistical Learning" (``zip.train.gz``, ``zip.test.gz``), or NumPy arrays
(``images.npy.xz``, ``labels.npy``, ``is_train.npy``). Each digit is scaled to 20x20 and lies in the
middle of 28x28, which is MNIST's own frame.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import numpy
import torch
from torch import nn

from falconcal.core.settings import settings
from falconcal.data.array_cache import Arrays, cached_arrays
from falconcal.data.class_folders import HeldOut, held_out_of
from falconcal.data.dataset import Dataset
from falconcal.data.images import PIXEL_BOUNDS, Images, as_images
from falconcal.data.locations import find_file, require_file, search_folders
from falconcal.data.sets.mnist import DIGIT_CLASSES
from falconcal.errors import UserError
from falconcal.io.array_files import read_packed_array
from falconcal.io.packed_text import read_number_lines, read_packed_text

USPS_FOLDERS = ("usps", "USPS")
USPS_SIDE, FRAMED_SIDE, FRAME_MARGIN = 16, 20, 4  # pixels; MNIST's digits have 20 of 28
USPS_ARRAYS = ("images.npy.xz", "labels.npy", "is_train.npy")
# names of the training and the test file, and the first label, which LIBSVM counts from 1
USPS_TEXTS = (("usps.bz2", "usps.t.bz2", 1), ("zip.train.gz", "zip.test.gz", 0))
USPS_ORIGIN = "LIBSVM's collection of data (usps.bz2 and usps.t.bz2)"


@settings
class Usps:
    """USPS, with settings."""

    test: Literal["test", "all"] = "test"
    """The 2,007 digits of the official test part, or all 9,298 for a model of other data."""

    held_out: HeldOut = 0.1
    """The share of the 7,291 training digits that is held out for validation."""

    path: str | None = None
    """The folder of the files; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        whole, is_train = self._images()
        train = _where(whole, is_train)
        held = torch.from_numpy(held_out_of(train.labels.numpy(), DIGIT_CLASSES, self.held_out))
        return Dataset(
            "usps", "image", DIGIT_CLASSES, PIXEL_BOUNDS,
            _where(train, ~held), _where(train, held), self.load_test(),
        )  # fmt: skip

    def load_test(self) -> Images:
        whole, is_train = self._images()
        return whole if self.test == "all" else _where(whole, ~is_train)

    def _images(self) -> tuple[Images, torch.Tensor]:
        files, read = find_usps(self.path)
        pixels, labels, is_train = cached_arrays("usps", files, lambda: read(files))
        images = as_images(pixels, labels, DIGIT_CLASSES, files[0])
        return images, torch.from_numpy(is_train).bool()


def _where(images: Images, which: torch.Tensor) -> Images:
    return Images(images.pixels[which], images.labels[which], images.classes)


def find_usps(path: str | None) -> tuple[list[Path], Callable[[list[Path]], Arrays]]:
    """Return the files in one of the layouts, and what reads them."""
    folders = search_folders(USPS_FOLDERS, path)
    for train, test, first in USPS_TEXTS:
        found = [find_file(folders, (name,)) for name in (train, test)]
        if None not in found:
            return [file for file in found if file], partial(read_texts, first=first)
    names = [require_file("usps", USPS_FOLDERS, (name,), path, USPS_ORIGIN) for name in USPS_ARRAYS]
    return names, read_usps_arrays


def read_texts(files: list[Path], first: int) -> Arrays:
    """Return framed bytes, labels and which are for training, of lines with numbers -1 to 1."""
    parts = [read_number_lines(read_packed_text(file), file, USPS_SIDE**2) for file in files]
    words = [word for one, _ in parts for word in one]
    numbers = numpy.concatenate([numbers for _, numbers in parts])
    pixels = ((numbers + 1) * 127.5).round().clip(0, 255).astype(numpy.uint8)
    try:
        labels = numpy.array([int(float(word)) - first for word in words])
    except ValueError as error:
        raise UserError(f"{files[0]}: expected lines that begin with a digit: {error}.") from None
    is_train = numpy.arange(len(words)) < len(parts[0][0])
    return framed_digits(pixels.reshape(-1, USPS_SIDE, USPS_SIDE)), labels, is_train


def read_usps_arrays(files: list[Path]) -> Arrays:
    """Return framed bytes, labels and which are for training, of NumPy arrays."""
    images, labels, is_train = (read_packed_array(file) for file in files)
    if images.dtype != numpy.uint8 or images.shape[1:] != (USPS_SIDE, USPS_SIDE):
        raise UserError(
            f"{files[0]}: expected bytes (N, 16, 16), got {images.dtype} {images.shape}."
        )
    return framed_digits(images), labels.astype(numpy.int64), is_train


def framed_digits(images: numpy.ndarray) -> numpy.ndarray:
    """Return digits in MNIST's frame: bytes (N, 16, 16) -> (N, 28, 28)."""
    small = torch.from_numpy(images)[:, None].float()
    # bilinear stays within the range of bytes
    large = nn.functional.interpolate(small, (FRAMED_SIDE, FRAMED_SIDE), mode="bilinear")
    return nn.functional.pad(large.round().byte(), [FRAME_MARGIN] * 4)[:, 0].numpy()
