"""ObjectNet as a shift of one level, and its classes that ImageNet does not have as outliers.

What lies where and which label it has is said in ``falconcal.data.sets.objectnet``; images are
framed as the data's own are. ``objectnet:single`` leaves out classes that are several of
ImageNet's.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torch import Tensor

from falconcal.data import Part
from falconcal.data.sets.objectnet import BORDER, Which, find_objectnet, labelled_files
from falconcal.errors import UserError
from falconcal.shifts.stored.stored_shift import StoredLevel, StoredShift, level_of_files

OBJECTNET_SUMMARY = "ObjectNet on disk, its classes that ImageNet has; the others are outliers"


def open_objectnet(which: str = "", path: str | None = None) -> StoredShift:
    """Return the classes that ImageNet has, or those that are one of its, as one level."""
    if which not in ("", "single"):
        raise UserError(f"objectnet has no part {which!r}: write objectnet, or objectnet:single.")
    classes: Which = "single" if which else "known"
    name = f"objectnet:{which}" if which else "objectnet"
    return StoredShift(
        name, 1, partial(_open, find_objectnet(path), classes), OBJECTNET_SUMMARY, True
    )


def outlier_batches(data: Part, size: int, seed: int) -> Iterator[Tensor]:  # noqa: ARG001
    """Yield the images of the classes that ImageNet does not have."""
    level = _open(find_objectnet(), "unknown", 1, data)
    for start in range(0, len(level), size):
        yield level.read(slice(start, start + size))


def _open(root: Path, which: Which, level: int, data: Part) -> StoredLevel:  # noqa: ARG001
    return level_of_files(labelled_files(root, which), data, root / "images", BORDER)
