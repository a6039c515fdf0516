"""What a stored ladder is, and what its readers share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from falconcal.data import AT_ONCE, Part
from falconcal.data.examples import check_labels
from falconcal.data.images import framing_of, in_range
from falconcal.errors import UserError
from falconcal.io.arrays import mapped_array
from falconcal.io.image_files import read_image


@dataclass(frozen=True, eq=False)
class StoredLevel:
    """What lies on disk of one level: all labels, and images that are read when asked for."""

    labels: Tensor  # (N,)
    read: Callable[[slice], Tensor]  # of N -> (some, channels, H, W) in the range of the data

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, part: slice) -> tuple[Tensor, Tensor]:
        return self.read(part), self.labels[part]


@dataclass(frozen=True)
class StoredShift:
    """A ladder whose levels lie on disk; level 0 is the clean data that it is compared with."""

    name: str
    severities: int
    open: Callable[[int, Part], StoredLevel]
    summary: str = ""
    own_examples: bool = False  # other ones than the test data, so that only sets are compared

    @property
    def levels(self) -> range:
        return range(self.severities + 1)

    def level(self, level: int, data: Part) -> StoredLevel:
        """Return a level from 1 up, for a model of such data."""
        if level not in self.levels[1:]:
            raise UserError(f"{self.name} has levels 1 to {self.severities} on disk, got {level}.")
        return self.open(level, data)

    def batches(
        self, level: int, data: Part, size: int = AT_ONCE
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches (N, ...) and (N,) of a level, each read when its turn comes."""
        stored = self.level(level, data)
        for start in range(0, len(stored), size):
            yield stored.batch(slice(start, start + size))


def open_array(file: Path) -> numpy.ndarray:
    """Return an array on disk, its numbers read when they are asked for."""
    if not file.is_file():
        raise UserError(f"expected the file {file}, found none: is the folder complete?")
    return mapped_array(file)


def check_choice(layout: str, corruption: str, folder: Path, found: Sequence[str]) -> None:
    """Refuse a corruption that is not there, and name those that are."""
    if corruption not in found:
        asked = f"{corruption!r}" if corruption else "none"
        there = ", ".join(sorted(found)) or "none at all"
        raise UserError(
            f"{layout}: expected a corruption, as {layout}:{sorted(found)[0] if found else 'fog'}, "
            f"got {asked}; {folder} has {there}."
        )


def level_of_arrays(
    images: numpy.ndarray, labels: numpy.ndarray, data: Part, file: Path
) -> StoredLevel:
    """Return arrays on disk as a level: bytes (N, H, W, channels) and labels (N,)."""
    if images.dtype != numpy.uint8 or images.ndim != 4 or len(images) != len(labels):
        raise UserError(
            f"expected bytes (N, height, width, channels) in {file}, and a label each, got "
            f"{images.dtype} {images.shape} and {len(labels)} labels."
        )
    found = (images.shape[3], *images.shape[1:3])
    if found != data.shape:
        raise UserError(
            f"expected images of the data's shape {data.shape} in {file}, got {found}: they are "
            "not resized."
        )
    numbers = torch.from_numpy(labels.astype(numpy.int64))
    return StoredLevel(numbers, lambda part: in_range(_tensor(images[part]), data.bounds))


def level_of_files(
    files: Sequence[tuple[Path, int]], data: Part, where: Path, border: int = 0
) -> StoredLevel:
    """Return image files with their labels as a level; they are framed as the data's own are."""
    if not files:
        raise UserError(f"expected images in {where}, found none: is the data complete?")

    framing = framing_of(data)

    def read(part: slice) -> Tensor:
        images = [read_image(file, framing, border) for file, _ in files[part]]
        return in_range(_tensor(numpy.stack(images)), data.bounds)

    labels = torch.tensor([label for _, label in files])
    check_labels(labels, len(files), None if data.classes is None else len(data.classes))
    return StoredLevel(labels, read)


def _tensor(pixels: numpy.ndarray) -> Tensor:
    """Return bytes that may lie on disk as bytes in memory."""
    return torch.from_numpy(numpy.array(pixels))
