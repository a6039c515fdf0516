"""ImageNet-C (Hendrycks & Dietterich, ICLR 2019): CORRUPTION/SEVERITY/SYNSET/*.JPEG.

Its parts, as ``blur/defocus_blur``, may lie in folders of their own. Images are 224 x 224 already.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from falconcal.data import Part
from falconcal.data.locations import find_folder
from falconcal.errors import UserError
from falconcal.io.folders import files_below
from falconcal.io.image_files import ENDINGS
from falconcal.shifts.corruptions import kin_of_corruption
from falconcal.shifts.stored.stored_shift import (
    STORED_SEVERITIES,
    StoredLevel,
    StoredShift,
    check_choice,
    level_of_files,
)

IMAGENET_C_FOLDERS = ("ImageNet-C", "imagenet-c", "imagenet_c")


def open_imagenet_c(corruption: str, path: str | None = None) -> StoredShift:
    """Return a corruption of ImageNet-C."""
    folder = find_folder("imagenet_c", IMAGENET_C_FOLDERS, path)
    first = [*folder.glob("*/1"), *folder.glob("*/*/1")]
    found = {severity.parent.name: severity.parent for severity in first}
    check_choice("imagenet_c", corruption, folder, list(found))
    opened = partial(_open, found[corruption])
    name, summary = f"imagenet_c:{corruption}", f"{corruption} (ImageNet-C)"
    kin = kin_of_corruption(corruption)
    return StoredShift(name, STORED_SEVERITIES, opened, summary, kin=kin)


def _open(folder: Path, level: int, data: Part) -> StoredLevel:
    severity = folder / str(level)
    if not severity.is_dir():
        raise UserError(f"expected the folder {severity}, it is not there: is the data complete?")
    synsets = sorted(one.name for one in severity.iterdir() if one.is_dir())
    numbers = class_numbers(synsets, data.classes, severity)
    files = [
        (file, numbers[synset])
        for synset in synsets
        for file in files_below(severity / synset, ENDINGS)
    ]
    return level_of_files(files, data, severity)


def class_numbers(
    synsets: Sequence[str], classes: tuple[str, ...] | None, folder: Path
) -> dict[str, int]:
    """Return the number of each synset: its index among the classes, or among all in order."""
    if classes is not None and set(synsets) <= set(classes):
        return {synset: classes.index(synset) for synset in synsets}
    if classes is None or len(classes) == len(synsets):
        return {synset: number for number, synset in enumerate(synsets)}
    raise UserError(
        f"expected a folder for each of the {len(classes)} classes in {folder}, got "
        f"{len(synsets)}: name the data's classes by their synsets, or complete the folder."
    )
