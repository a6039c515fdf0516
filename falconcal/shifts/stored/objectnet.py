"""ObjectNet (Barbu et al., NeurIPS 2019): images/CLASS/*.png, mappings/*.json, as distributed.

113 of its 313 classes are classes of ImageNet: one level, labelled by ImageNet's numbers. The
others are outliers. Every image has a red border of 2 pixels, which is cut off. The mapping is read
from ObjectNet's own files. Nine of the 113 are several of ImageNet's classes, as an alarm clock is
an analog or a digital one: their label is the first, and ``objectnet:single`` leaves them out.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from falconcal.data import Part
from falconcal.errors import UserError
from falconcal.shifts.stored.ladder import (
    StoredLevel,
    StoredShift,
    find_folder,
    image_files,
    level_of_files,
)

SUMMARY = "ObjectNet on disk, its classes that ImageNet has; the others are outliers"
FOLDERS = ("objectnet-1.0", "objectnet")
BORDER = 2  # red pixels on every side
SINGLE = "single"
FOLDER_LABELS, TO_IMAGENET = "folder_to_objectnet_label", "objectnet_to_imagenet_1k"
TO_LINE, LINES = "pytorch_to_imagenet_2012_id", "imagenet_to_label_2012_v2"


def open_ladder(which: str = "", path: str | None = None) -> StoredShift:
    """Return the classes that ImageNet has, or those that are one of its, as one level."""
    if which not in ("", SINGLE):
        raise UserError(f"objectnet has no part {which!r}: write objectnet, or objectnet:{SINGLE}.")
    folder = find_folder("objectnet", FOLDERS, path)
    name = f"objectnet:{which}" if which else "objectnet"
    return StoredShift(name, 1, partial(_open, folder, which == SINGLE), SUMMARY, True)


def outlier_batches(data: Part, size: int, seed: int) -> Iterator[Tensor]:  # noqa: ARG001
    """Yield the images of the classes that ImageNet does not have."""
    folder = find_folder("objectnet", FOLDERS, None)
    shared = imagenet_numbers(folder)
    kinds = [kind for kind in _kinds(folder) if kind.name not in shared]
    files = [(file, -1) for kind in kinds for file in image_files(kind)]
    level = level_of_files(files, data, folder / "images", BORDER)
    for start in range(0, len(level), size):
        yield level.read(slice(start, start + size))


def imagenet_numbers(folder: Path) -> dict[str, list[int]]:
    """Return ImageNet's numbers for each folder of a shared class, one or several."""
    names = {label: name for name, label in _read_json(folder, FOLDER_LABELS).items()}
    numbers = _numbers_of_labels(folder)
    found = {}
    for label, imagenet in _read_json(folder, TO_IMAGENET).items():
        labels = str(imagenet).split("; ")
        if label not in names or not numbers.keys() >= set(labels):
            raise UserError(
                f"cannot follow the mapping of ObjectNet's {label!r} to ImageNet's {imagenet!r} "
                f"in {folder / 'mappings'}: are its files of one distribution?"
            )
        found[names[label]] = [numbers[one] for one in labels]
    return found


def _numbers_of_labels(folder: Path) -> dict[str, int]:
    """Return the number of each of ImageNet's labels: the line it stands on says its id."""
    ids = {int(line): int(number) for number, line in _read_json(folder, TO_LINE).items()}
    labels = _read_lines(folder / "mappings" / LINES)
    return {label: ids[line] for line, label in enumerate(labels) if line in ids}


def _open(folder: Path, single: bool, level: int, data: Part) -> StoredLevel:  # noqa: ARG001
    numbers = imagenet_numbers(folder)
    chosen = {name: some[0] for name, some in numbers.items() if len(some) == 1 or not single}
    files = [
        (file, chosen[kind.name])
        for kind in _kinds(folder)
        if kind.name in chosen
        for file in image_files(kind)
    ]
    return level_of_files(files, data, folder / "images", BORDER)


def _kinds(folder: Path) -> list[Path]:
    images = folder / "images"
    if not images.is_dir():
        raise UserError(f"expected the folder {images}, found none: is the data complete?")
    return [one for one in sorted(images.iterdir()) if one.is_dir()]


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    file = folder / "mappings" / f"{name}.json"
    try:
        content = json.loads("\n".join(_read_lines(file)))
    except json.JSONDecodeError as error:
        raise UserError(f"cannot read {file}: it is damaged ({error}).") from None
    if not isinstance(content, dict):
        raise UserError(f"expected names in {file}, got {type(content).__name__}.")
    return content


def _read_lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}, which is part of ObjectNet: {error}.") from None
