"""MNIST-C (Mu & Gilmer, 2019): one folder per corruption, test_images.npy and test_labels.npy.

Images are bytes (10000, 28, 28, 1); there is one severity.
"""

from functools import partial
from pathlib import Path

from falconcal.data import Part
from falconcal.data.locations import find_folder
from falconcal.shifts.corruptions import kin_of_corruption
from falconcal.shifts.stored.stored_shift import (
    StoredLevel,
    StoredShift,
    check_choice,
    level_of_arrays,
    open_array,
)

MNIST_C_FOLDERS = ("mnist_c", "MNIST-C", "mnist-c")
IMAGES, LABELS = "test_images.npy", "test_labels.npy"
# families that corruptions which only MNIST-C has resemble
MNIST_C_KIN: dict[str, tuple[str, ...]] = {
    "rotate": ("rot_left", "rot_right"),
    "shear": ("shear",),
    "scale": ("xzoom", "yzoom", "xyzoom"),
    "translate": ("xshift", "yshift", "xyshift"),
    **dict.fromkeys(("dotted_line", "zigzag", "stripe"), ("background_lines",)),
}


def open_mnist_c(corruption: str, path: str | None = None) -> StoredShift:
    """Return a corruption of MNIST-C, which has one level."""
    folder = find_folder("mnist_c", MNIST_C_FOLDERS, path)
    found = [file.parent.name for file in folder.glob(f"*/{IMAGES}")]
    check_choice("mnist_c", corruption, folder, found)
    opened = partial(_open, folder / corruption)
    kin = MNIST_C_KIN.get(corruption) or kin_of_corruption(corruption)
    return StoredShift(f"mnist_c:{corruption}", 1, opened, f"{corruption} (MNIST-C)", kin=kin)


def _open(folder: Path, level: int, data: Part) -> StoredLevel:  # noqa: ARG001
    file = folder / IMAGES
    images, labels = open_array(file), open_array(folder / LABELS)
    images = images[..., None] if images.ndim == 3 else images
    return level_of_arrays(images, labels, data, file)
