"""notMNIST, letters A to J in many typefaces, 28x28 grey: outliers for models of other images.

Y. Bulatov, 2011. The two test files in MNIST's form, or the unpacked ``notMNIST_small`` with one
folder of PNG files per letter, of which two are empty and left out. It is for testing only.
"""

from pathlib import Path

import numpy

from falconcal.core.settings import settings
from falconcal.data.array_cache import cached_arrays
from falconcal.data.class_folders import list_files
from falconcal.data.dataset import Dataset
from falconcal.data.images import Images, as_images
from falconcal.data.locations import require_file, search_folders
from falconcal.errors import UserError
from falconcal.io.idx import read_idx
from falconcal.io.image_files import Framing, read_image

NOTMNIST_FOLDERS = ("notmnist", "notMNIST", "notMNIST_small")
LETTERS = tuple("ABCDEFGHIJ")
NOTMNIST_ORIGIN = "Y. Bulatov's pages (notMNIST_small.tar.gz, unpacked)"
NOTMNIST_FRAMING = Framing(height=28, width=28, channels=1)


@settings
class NotMnist:
    """notMNIST, with settings; it has only a test part."""

    path: str | None = None
    """The folder of its files; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        raise UserError(
            "notmnist has a test part alone: choose another dataset to train on, and notmnist "
            "among its outliers."
        )

    def load_test(self) -> Images:
        for folder in search_folders(NOTMNIST_FOLDERS, self.path):
            for root in (folder, folder / "notMNIST_small"):
                if (root / LETTERS[0]).is_dir():
                    return _read_folder(root)
        images, labels = (
            require_file(
                "notmnist", NOTMNIST_FOLDERS, (f"{name}.gz", name), self.path, NOTMNIST_ORIGIN
            )
            for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
        )
        return as_images(read_idx(images, 3), read_idx(labels, 1), LETTERS, images)


def _read_folder(root: Path) -> Images:
    listed = list_files(root, frozenset({".png"}), LETTERS)
    whole = listed.chosen(numpy.flatnonzero([file.stat().st_size > 0 for file in listed.files]))

    def read() -> tuple[numpy.ndarray]:
        return (numpy.stack([read_image(file, NOTMNIST_FRAMING) for file in whole.files]),)

    (pixels,) = cached_arrays("notmnist", whole.files, read)
    return as_images(pixels, whole.labels, LETTERS, root)
