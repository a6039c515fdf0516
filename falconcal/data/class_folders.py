"""Your own files in folders: train, validation and test, with one folder per class in each.

Without validation, or test, a seeded share of the training files is held out for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy
from pydantic import Field

from falconcal.errors import UserError
from falconcal.io.folders import files_below

PART_FOLDERS = {
    "train": ("train",),
    "validation": ("validation", "val", "valid"),
    "test": ("test",),
}
HeldOut = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, eq=False)
class LabelledFiles:
    """Files of one part, with labels in the order of the classes' names."""

    files: Sequence[Path]
    labels: numpy.ndarray  # (N,)
    classes: tuple[str, ...]

    def chosen(self, which: numpy.ndarray) -> "LabelledFiles":
        return LabelledFiles(
            [self.files[index] for index in which], self.labels[which], self.classes
        )


def list_parts(
    root: Path, endings: frozenset[str], held_out: float, test: Path | None = None
) -> dict[str, LabelledFiles]:
    """Return the files of the three parts; those without a folder are held out of training.

    ``test`` is another folder that has one folder per class, for the test part.
    """
    folders = {
        part: next((root / name for name in names if (root / name).is_dir()), None)
        for part, names in PART_FOLDERS.items()
    }
    folders["test"] = test or folders["test"]
    train = list_files(folders["train"] or root, endings)
    parts = {}
    for part in ("test", "validation"):
        folder = folders[part]
        if folder is not None:
            parts[part] = list_files(folder, endings, train.classes)
        else:
            train, parts[part] = split_off(train, held_out)
    return {**parts, "train": train}


def list_files(
    folder: Path, endings: frozenset[str], classes: tuple[str, ...] | None = None
) -> LabelledFiles:
    """Return the files with such endings in a folder that has one folder per class."""
    found = {
        inner.name: files_below(inner, endings)
        for inner in sorted(folder.iterdir())
        if inner.is_dir() and not inner.name.startswith(".")
    }
    names = classes or tuple(name for name, files in found.items() if files)
    strange = [name for name, files in found.items() if files and name not in names]
    if len(names) < 2 or strange or not any(found.values()):
        raise UserError(
            f"{folder}: expected a folder of files for each class, "
            + (f"got classes that training does not have: {', '.join(strange)}." if strange
               else f"at least two, found {len(names)}.")
        )  # fmt: skip
    files = [(file, names.index(name)) for name, listed in found.items() for file in listed]
    return LabelledFiles(
        [file for file, _ in files], numpy.array([label for _, label in files]), names
    )


def split_off(listed: LabelledFiles, share: float) -> tuple[LabelledFiles, LabelledFiles]:
    """Return what stays and what is held out of every class."""
    taken = held_out_of(listed.labels, listed.classes, share)
    return listed.chosen(numpy.flatnonzero(~taken)), listed.chosen(numpy.flatnonzero(taken))


def held_out_of(labels: numpy.ndarray, classes: Sequence[str], share: float) -> numpy.ndarray:
    """Return which examples are held out, (N,): a share of every class, drawn by a fixed seed."""
    random, taken = numpy.random.RandomState(0), numpy.zeros(len(labels), dtype=bool)
    for label, name in enumerate(classes):
        own = random.permutation(numpy.flatnonzero(labels == label))
        if len(own) < 2:
            raise UserError(
                f"expected at least 2 training examples of class {name!r}, so that one can be held "
                f"out, got {len(own)}."
            )
        taken[own[: max(1, round(share * len(own)))]] = True
    return taken
