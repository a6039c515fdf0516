"""CIFAR-10-C (Hendrycks & Dietterich, ICLR 2019): CORRUPTION.npy, bytes (50000, 32, 32, 3).

The five severities of the 10,000 test images follow each other; labels.npy holds the labels of all.
"""

from functools import partial
from pathlib import Path

from falconcal.data import Part
from falconcal.data.places import find_folder
from falconcal.errors import UserError
from falconcal.shifts.stored.ladder import (
    StoredLevel,
    StoredShift,
    check_choice,
    level_of_arrays,
    open_array,
)

SUMMARY = "CIFAR-10-C on disk, severities 1 to 5, as cifar10_c:fog"
FOLDERS = ("CIFAR-10-C", "cifar-10-c", "cifar10_c")
SEVERITIES = 5


def open_ladder(corruption: str, path: str | None = None) -> StoredShift:
    """Return a corruption of CIFAR-10-C as a ladder."""
    folder = find_folder("cifar10_c", FOLDERS, path)
    found = [file.stem for file in folder.glob("*.npy") if file.stem != "labels"]
    check_choice("cifar10_c", corruption, folder, found)
    name, opened = f"cifar10_c:{corruption}", partial(_open, folder, corruption)
    return StoredShift(name, SEVERITIES, opened, f"{corruption} (CIFAR-10-C)")


def _open(folder: Path, corruption: str, level: int, data: Part) -> StoredLevel:
    file = folder / f"{corruption}.npy"
    images, labels = open_array(file), open_array(folder / "labels.npy")
    if len(images) % SEVERITIES or len(labels) != len(images):
        raise UserError(
            f"expected equally many images of {SEVERITIES} severities in {file}, and labels of "
            f"all in labels.npy, got {len(images)} images and {len(labels)} labels."
        )
    count = len(images) // SEVERITIES
    part = slice((level - 1) * count, level * count)
    return level_of_arrays(images[part], labels[part], data, file)
