"""CIFAR-10-C (Hendrycks & Dietterich, ICLR 2019): CORRUPTION.npy, bytes (50000, 32, 32, 3).

The five severities of the 10,000 test images follow each other; labels.npy holds the labels of all.
"""

from functools import partial
from pathlib import Path

from falconcal.data import Part
from falconcal.data.locations import find_folder
from falconcal.errors import UserError
from falconcal.shifts.corruptions import kin_of_corruption
from falconcal.shifts.stored.stored_shift import (
    STORED_SEVERITIES,
    StoredLevel,
    StoredShift,
    check_choice,
    level_of_arrays,
    open_array,
)

CIFAR10_C_FOLDERS = ("CIFAR-10-C", "cifar-10-c", "cifar10_c")


def open_cifar10_c(corruption: str, path: str | None = None) -> StoredShift:
    """Return a corruption of CIFAR-10-C."""
    folder = find_folder("cifar10_c", CIFAR10_C_FOLDERS, path)
    found = [file.stem for file in folder.glob("*.npy") if file.stem != "labels"]
    check_choice("cifar10_c", corruption, folder, found)
    name, opened = f"cifar10_c:{corruption}", partial(_open, folder, corruption)
    summary, kin = f"{corruption} (CIFAR-10-C)", kin_of_corruption(corruption)
    return StoredShift(name, STORED_SEVERITIES, opened, summary, kin=kin)


def _open(folder: Path, corruption: str, level: int, data: Part) -> StoredLevel:
    file = folder / f"{corruption}.npy"
    images, labels = open_array(file), open_array(folder / "labels.npy")
    if len(images) % STORED_SEVERITIES or len(labels) != len(images):
        raise UserError(
            f"expected equally many images of {STORED_SEVERITIES} severities in {file}, and the "
            f"labels of all in labels.npy, got {len(images)} images and {len(labels)} labels."
        )
    count = len(images) // STORED_SEVERITIES
    part = slice((level - 1) * count, level * count)
    return level_of_arrays(images[part], labels[part], data, file)
