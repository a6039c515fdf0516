"""What a stored ladder is, and what its readers share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor

from falconcal.data import AT_ONCE, Part
from falconcal.data.places import DATA, folders
from falconcal.errors import UserError
from falconcal.io.arrays import mapped_array

MODES = {1: "L", 3: "RGB"}  # by channels
FILES = (".jpeg", ".jpg", ".png")
WIDER = 256 / 224  # what a larger image is brought to before its middle is cut out, as for ImageNet


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


def find_folder(name: str, names: Sequence[str], path: str | None) -> Path:
    """Return the folder of a layout: the path given or one below it, else where data is kept."""
    if path is not None:
        given = folders(names, path)[0]
        below = [given / one for one in names if (given / one).is_dir()]
        return below[0] if below else given
    found = folders(names)
    if not found:
        raise UserError(
            f"{name}: expected its folder, {' or '.join(names)}, in the folder that {DATA} names, "
            "found none: put it there, or say where it lies."
        )
    return found[0]


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


def scaled(pixels: numpy.ndarray, data: Part) -> Tensor:
    """Return bytes (N, H, W, channels) as images in the range of the data: (N, channels, H, W)."""
    images = torch.from_numpy(numpy.array(pixels)).permute(0, 3, 1, 2).float().div_(255)
    return images if data.bounds is None else data.bounds.low + data.bounds.range * images


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
    return StoredLevel(numbers, lambda part: scaled(images[part], data))


def image_files(folder: Path) -> list[Path]:
    """Return the images of a folder in the order of their names."""
    if not folder.is_dir():
        raise UserError(f"expected the folder {folder}, found none: is the data complete?")
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in FILES)


def level_of_files(
    files: Sequence[tuple[Path, int]], data: Part, where: Path, border: int = 0
) -> StoredLevel:
    """Return image files with their labels as a level."""
    if not files:
        raise UserError(f"expected images in {where}, found none: is the data complete?")

    def read(part: slice) -> Tensor:
        images = [read_image(file, data.shape, border) for file, _ in files[part]]
        return scaled(numpy.stack(images), data)

    return StoredLevel(torch.tensor([label for _, label in files]), read)


def read_image(file: Path, shape: tuple[int, ...], border: int = 0) -> numpy.ndarray:
    """Return an image as bytes of the shape asked for (channels, H, W): (H, W, channels).

    A border is cut off first. What is at size then stays as it is; a larger image is brought to
    256 / 224 of the size by its shorter side, and its middle cut out.
    """
    channels, height, width = _image_shape(shape)
    try:
        with Image.open(file) as image:
            plain = image.convert(MODES[channels])
    except (OSError, ValueError, SyntaxError) as error:
        raise UserError(f"cannot read {file}: it is damaged or no image ({error}).") from None
    if border:
        plain = plain.crop((border, border, plain.width - border, plain.height - border))
    if plain.size != (width, height):
        plain = _fitted(plain, height, width)
    return numpy.asarray(plain).reshape(height, width, channels)


def _fitted(image: Image.Image, height: int, width: int) -> Image.Image:
    scale = WIDER * max(height / image.height, width / image.width)
    size = round(image.width * scale), round(image.height * scale)
    larger = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (larger.width - width) // 2, (larger.height - height) // 2
    return larger.crop((left, top, left + width, top + height))


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[0] not in MODES:
        raise UserError(f"expected data of grey or colour images, its examples have shape {shape}.")
    return shape[0], shape[1], shape[2]
