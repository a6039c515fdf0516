"""MNIST, 70,000 handwritten digits, 28x28 grey: the paper's 55,000 / 5,000 / 10,000.

Y. LeCun, C. Cortes and C. Burges, 1998; the four official IDX files, gzip'd or plain. The first
55,000 of the training images train, the last 5,000 validate.
"""

from collections.abc import Sequence
from pathlib import Path

from falconcal.data.examples import Dataset
from falconcal.data.idx import read_idx
from falconcal.data.images import PIXELS, Images, as_images
from falconcal.data.places import find, folders, missing
from falconcal.errors import UserError
from falconcal.settings import settings

CLASSES = tuple(str(digit) for digit in range(10))
FOLDERS = ("mnist", "MNIST/raw")
TRAIN, TEST, VALIDATION = "train", "t10k", 5000


@settings
class Mnist:
    """Where MNIST lies, unless it is to be looked for."""

    path: str | None = None

    def load(self) -> Dataset:
        return load_digits("mnist", CLASSES, folders(FOLDERS, self.path))

    def load_test(self) -> Images:
        return read_pair("mnist", TEST, CLASSES, folders(FOLDERS, self.path))


def load_digits(name: str, classes: tuple[str, ...], places: Sequence[Path]) -> Dataset:
    """Return a dataset of MNIST's form from the first of the places that have its files."""
    whole = read_pair(name, TRAIN, classes, places)
    if len(whole) <= VALIDATION:
        raise UserError(
            f"{name}: expected more than {VALIDATION} training images, the last of which validate, "
            f"got {len(whole)}: is the file the official one?"
        )
    train, validation = whole.part(slice(-VALIDATION)), whole.part(slice(-VALIDATION, None))
    test = read_pair(name, TEST, classes, places)
    return Dataset(name, "image", classes, PIXELS, train, validation, test)


def read_pair(name: str, part: str, classes: tuple[str, ...], places: Sequence[Path]) -> Images:
    """Return the images and labels of one pair of files."""
    images, labels = (
        _found(name, f"{part}-{kind}", places)
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    return as_images(read_idx(images, 3), read_idx(labels, 1), classes, images)


def _found(name: str, file: str, places: Sequence[Path]) -> Path:
    names = (f"{file}.gz", file)
    path = find(places, names)
    if path is None:
        raise missing(name, names, places)
    return path
