"""ObjectNet, objects in unusual places, for testing models of ImageNet: its files and labels.

A. Barbu et al., NeurIPS 2019. The unpacked ``objectnet-1.0``: ``images/CLASS/*.png`` and four files
of ``mappings``, by which 113 of its 313 classes are classes of ImageNet. Nine of these are several
of ImageNet's, as an alarm clock is an analog or a digital one: their label is the first of them.
``single`` leaves them out, which the authors' code does: 104 classes. The other 200 classes are
outliers. Every image has a red border of 2 pixels, which is cut off. The sample of ten images that
the ObjectNet Challenge gives away is read too: images beside ``answers.json`` and
``imagenet_pytorch_id_to_objectnet_id.json``.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from falconcal.core.settings import settings
from falconcal.data.dataset import Dataset
from falconcal.data.locations import find_folder
from falconcal.data.sets.imagenet import FRAMING
from falconcal.data.streamed_images import StreamedImages
from falconcal.errors import UserError
from falconcal.io.folders import files_below
from falconcal.io.image_files import ENDINGS
from falconcal.io.parsing import parse_json

OBJECTNET_FOLDERS = ("objectnet-1.0", "objectnet", "objectnet-sample")
BORDER = 2  # red pixels on every side
OUTLIER = -1
FOLDER_LABELS, TO_IMAGENET = "folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json"
ANSWERS, SAMPLE_MAP = "answers.json", "imagenet_pytorch_id_to_objectnet_id.json"
IMAGENET_CLASSES = 1000
TO_LINE, LINES = "pytorch_to_imagenet_2012_id.json", "imagenet_to_label_2012_v2"

Which = Literal["known", "single", "unknown"]


@settings
class ObjectNet:
    """ObjectNet, with settings; it has only a test part."""

    images: Which = "known"
    """Images of classes that ImageNet has (``known``), of those that are one class of ImageNet
    (``single``), or of other classes (``unknown``)."""

    path: str | None = None
    """The unpacked folder objectnet-1.0; by default it is looked for where data is kept."""

    workers: Annotated[int, Field(ge=0)] = 4
    """Processes that decode images; 0 decodes in this one."""

    def load(self) -> Dataset:
        raise UserError(
            "objectnet is for testing only, its authors forbid training on it: choose imagenet as "
            "the dataset and test it on objectnet."
        )

    def load_test(self) -> StreamedImages:
        root = find_objectnet(self.path)
        files = labelled_files(root, self.images)
        return StreamedImages(
            [file for file, _ in files],
            torch.tensor([label for _, label in files]),
            imagenet_classes(root),
            FRAMING,
            self.workers,
            BORDER,
        )


def find_objectnet(path: str | None = None) -> Path:
    """Return the folder that holds the images and the mappings."""
    root = find_folder("objectnet", OBJECTNET_FOLDERS, path)
    if not (root / "images").is_dir() and not _is_sample(root):
        raise UserError(
            f"objectnet: expected the folders images and mappings in {root}, found no images: is "
            "it the unpacked objectnet-1.0?"
        )
    return root


def labelled_files(root: Path, which: Which) -> list[tuple[Path, int]]:
    """Return the image files of some classes in the order of their names, with their labels."""
    if _is_sample(root):
        return _sample_files(root, which)
    label_of = _labels(root, which)
    files = [
        (file, label_of[folder.name])
        for folder in sorted((root / "images").iterdir())
        if folder.name in label_of
        for file in files_below(folder, ENDINGS)
    ]
    if not files:
        raise UserError(f"{root}: expected images of {which} classes, got none: is it complete?")
    return files


def _is_sample(root: Path) -> bool:
    return (root / ANSWERS).is_file()


def _sample_files(root: Path, which: Which) -> list[tuple[Path, int]]:
    """Return the files of the sample whose classes are asked for, with their labels."""
    numbers_of: dict[int, list[int]] = {}
    for number, own in _parsed(root / SAMPLE_MAP).items():
        numbers_of.setdefault(int(own), []).append(int(number))
    pairs = [
        (root / name, numbers_of.get(int(own), [OUTLIER]))
        for name, own in sorted(_parsed(root / ANSWERS).items())
    ]
    unknown = which == "unknown"
    return [
        (file, numbers[0])
        for file, numbers in pairs
        if (numbers == [OUTLIER]) == unknown and (which != "single" or len(numbers) == 1)
    ]


def _labels(root: Path, which: Which) -> dict[str, int]:
    """Return the label of each folder of images that is asked for."""
    shared = imagenet_numbers(root)
    if which == "unknown":
        every = _read_json(root, FOLDER_LABELS)
        return {folder: OUTLIER for folder in every if folder not in shared}
    most = 1 if which == "single" else max(map(len, shared.values()), default=1)
    return {folder: numbers[0] for folder, numbers in shared.items() if len(numbers) <= most}


def imagenet_numbers(root: Path) -> dict[str, list[int]]:
    """Return ImageNet's numbers for each folder of a shared class, one or several."""
    folders = {label: folder for folder, label in _read_json(root, FOLDER_LABELS).items()}
    number_of = {label: number for number, label in enumerate(imagenet_classes(root))}
    found = {}
    for label, imagenet in _read_json(root, TO_IMAGENET).items():
        names = [name.strip() for name in str(imagenet).split(";")]
        if label not in folders or not number_of.keys() >= set(names):
            raise UserError(
                f"cannot follow the mapping of ObjectNet's {label!r} to ImageNet's {imagenet!r} "
                f"in {root / 'mappings'}: are its files of one distribution?"
            )
        found[folders[label]] = [number_of[name] for name in names]
    return found


def imagenet_classes(root: Path) -> tuple[str, ...]:
    """Return ImageNet's classes in the usual order, as ObjectNet's files name them."""
    if _is_sample(root):  # which has their numbers alone
        return tuple(str(number) for number in range(IMAGENET_CLASSES))
    lines, line_of = _read_lines(root, LINES), _read_json(root, TO_LINE)
    try:
        return tuple(lines[int(line_of[str(number)])] for number in range(len(line_of)))
    except (KeyError, IndexError, TypeError, ValueError):
        raise UserError(
            f"cannot follow {TO_LINE} to the lines of {LINES} in {root / 'mappings'}: are its "
            "files of one distribution?"
        ) from None


def _read_json(root: Path, name: str) -> dict[str, Any]:
    return _parsed(root / "mappings" / name)


def _parsed(file: Path) -> dict[str, Any]:
    try:
        content = parse_json("\n".join(_lines(file)))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"cannot read {file}: damaged ({error}).") from None
    if not isinstance(content, dict):
        raise UserError(f"expected names in {file}, got {type(content).__name__}.")
    return content


def _read_lines(root: Path, name: str) -> list[str]:
    return _lines(root / "mappings" / name)


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}, which is part of ObjectNet: {error}.") from None
