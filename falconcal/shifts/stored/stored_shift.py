"""A stored shift, and what the readers of its files share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from falconcal.data import PREDICTION_BATCH_SIZE, Part
from falconcal.data.images import framing_of, in_range
from falconcal.data.input_checks import check_labels
from falconcal.errors import UserError
from falconcal.io.array_files import mapped_array
from falconcal.io.image_files import read_image

STORED_SEVERITIES = 5  # of CIFAR-10-C and ImageNet-C


@dataclass(frozen=True, eq=False)
class StoredLevel:
    """One level on disk: all labels, and images that are read when they are asked for."""

    labels: Tensor  # (N,)
    read: Callable[[slice], Tensor]  # a slice of N -> (K, channels, H, W) in the data's range

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, part: slice) -> tuple[Tensor, Tensor]:
        return self.read(part), self.labels[part]


@dataclass(frozen=True)
class StoredShift:
    """A shift whose levels are stored on disk; level 0 is the clean data it is compared with.

    Args:
        name: Its name, as ``cifar10_c:fog``.
        severities: The number of stored levels.
        open: Called as ``open(level, data)``; returns the level for a model of such data.
        summary: One line for ``falconcal list shifts``.
        own_examples: Whether the examples are other ones than the test data, so that only whole
            sets can be compared.
        kin: Families that it resembles, as of a ``Shift``.

    Example:
        >>> import torch, falconcal
        >>> from falconcal.shifts import StoredShift
        >>> from falconcal.shifts.stored.stored_shift import StoredLevel
        >>> images, labels = torch.zeros(3, 1, 28, 28), torch.tensor([0, 1, 2])
        >>> level = StoredLevel(labels, lambda part: images[part])
        >>> shift = StoredShift("black", 1, lambda number, data: level)
        >>> data = falconcal.load_dataset("digits").test
        >>> [labels.tolist() for inputs, labels in shift.batches(1, data, size=2)]
        [[0, 1], [2]]
    """

    name: str
    severities: int
    open: Callable[[int, Part], StoredLevel]
    summary: str = ""
    own_examples: bool = False
    kin: tuple[str, ...] = ()

    @property
    def levels(self) -> range:
        """The levels, from 0, which is the clean data."""
        return range(self.severities + 1)

    def level(self, level: int, data: Part) -> StoredLevel:
        """Return a level from 1 up, for a model of such data."""
        if level not in self.levels[1:]:
            raise UserError(f"{self.name} has levels 1 to {self.severities} on disk, got {level}.")
        return self.open(level, data)

    def batches(
        self, level: int, data: Part, size: int = PREDICTION_BATCH_SIZE
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of a level, each read when it is its turn.

        Args:
            level: From 1.
            data: The clean data, whose shape, range and framing the images get.
            size: Examples per batch.

        Yields:
            Inputs (N, ...) and labels (N,).
        """
        stored = self.level(level, data)
        for start in range(0, len(stored), size):
            yield stored.batch(slice(start, start + size))


def open_array(file: Path) -> numpy.ndarray:
    """Return an array on disk, memory-mapped."""
    if not file.is_file():
        raise UserError(f"expected the file {file}, which is not there: is the folder complete?")
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
            f"expected bytes (N, height, width, channels) in {file}, one label each, got "
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
    """Return image files with their labels as a level, framed as the data's own are."""
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
