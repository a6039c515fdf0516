"""MNIST, 70,000 handwritten digits, 28x28 grey: the paper's 55,000 / 5,000 / 10,000.

Y. LeCun, C. Cortes and C. Burges, 1998; the four official IDX files, gzip'd or plain. The first
55,000 of the training images train, the last 5,000 validate.
"""

from collections.abc import Sequence

from falconcal.core.settings import settings
from falconcal.data.data_files import MNIST, DataFile
from falconcal.data.dataset import Dataset
from falconcal.data.images import PIXEL_BOUNDS, Images, as_images
from falconcal.errors import UserError
from falconcal.io.idx import read_idx

DIGIT_CLASSES = tuple(str(digit) for digit in range(10))
HELD_OUT = 5000


@settings
class Mnist:
    """MNIST, with settings."""

    path: str | None = None
    """The folder of MNIST's four files; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        return load_digits("mnist", DIGIT_CLASSES, MNIST, self.path)

    def load_test(self) -> Images:
        return read_pair(DIGIT_CLASSES, MNIST[2:], self.path)


def load_digits(
    name: str, classes: tuple[str, ...], sources: Sequence[DataFile], path: str | None
) -> Dataset:
    """Return a dataset of MNIST's form: images and labels of training, then those of test."""
    whole = read_pair(classes, sources[:2], path)
    if len(whole) <= HELD_OUT:
        raise UserError(
            f"{name}: expected more than {HELD_OUT} training images, because the last are for "
            f"validation, got {len(whole)}: is the file the official one?"
        )
    train, validation = whole.part(slice(-HELD_OUT)), whole.part(slice(-HELD_OUT, None))
    test = read_pair(classes, sources[2:], path)
    return Dataset(name, "image", classes, PIXEL_BOUNDS, train, validation, test)


def read_pair(classes: tuple[str, ...], sources: Sequence[DataFile], path: str | None) -> Images:
    """Return the images and labels of one pair of files."""
    images, labels = (source.find_or_fetch(path) for source in sources)
    return as_images(read_idx(images, 3), read_idx(labels, 1), classes, images)
