"""CIFAR-10, 60,000 colour images of ten kinds, 32x32: the paper's 45,000 / 5,000 / 10,000.

A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. The official binary
version, packed or unpacked, or NumPy arrays, ``train_images_1..5.npy.xz``. Decoded once, the pixels
are in the cache and memory-mapped. The python version is refused: pickles may run any code.
"""

import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy
import torch

from falconcal.core.settings import settings
from falconcal.data.array_cache import cached_arrays
from falconcal.data.augmentation import rotate_translate_flip
from falconcal.data.data_files import CIFAR10
from falconcal.data.dataset import Dataset
from falconcal.data.images import PIXEL_BOUNDS, Images, as_images
from falconcal.data.locations import find_file, search_folders
from falconcal.errors import UserError
from falconcal.io.array_files import read_packed_array

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
UNPACKED = "cifar-10-batches-bin"
PICKLED = ("cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1", "data_batch_1")
BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
PUBLISHED = """
5dd7e06a14cb22eb9f671a540d1b7c25 5ea93a67294ea407fff1d09f752e9692 942cd6a4bcdd0dd3c604fbe906cb4421
ae636b3ba5c66a11e91e8cb52e771fcb 53f37980c15c3d472c316c40844f3f0d 803d5f7f4d78ea53de84dbe85f74fb6d
"""  # md5 of the batches' files, training then test
VALIDATION_IMAGES = 5000
IMAGE_SIDE, IMAGE_CHANNELS = 32, 3
RECORD = 1 + IMAGE_CHANNELS * IMAGE_SIDE**2  # label, then the planes of red, green and blue
IMAGE = (IMAGE_SIDE, IMAGE_SIDE, IMAGE_CHANNELS)


@settings
class Cifar10:
    """CIFAR-10, with settings."""

    augment: bool = True
    """Whether training batches are augmented as in the paper."""

    path: str | None = None
    """The folder or the archive of CIFAR-10; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        train, test = self._images("train"), self._images("test")
        if len(train) <= VALIDATION_IMAGES:
            raise UserError(
                f"cifar10: expected more than {VALIDATION_IMAGES} training images, because the "
                f"last are for validation, got {len(train)}: are the files the official ones?"
            )
        parts = (
            train.part(slice(-VALIDATION_IMAGES)),
            train.part(slice(-VALIDATION_IMAGES, None)),
            test,
        )
        augment = rotate_translate_flip if self.augment else None
        return Dataset("cifar10", "image", CIFAR10_CLASSES, PIXEL_BOUNDS, *parts, augment=augment)

    def load_test(self) -> Images:
        return self._images("test")

    def _images(self, part: str) -> Images:
        files, read = find_part(part, self.path)
        pixels, labels = cached_arrays(f"cifar10-{part}", files, lambda: read(files))
        return as_images(pixels, labels, CIFAR10_CLASSES, files[0])


# pixels (N, 32, 32, 3) and labels (N,), bytes
PixelsAndLabels = tuple[numpy.ndarray, numpy.ndarray]


def find_part(
    part: str, path: str | None
) -> tuple[list[Path], Callable[[Sequence[Path]], PixelsAndLabels]]:
    """Return the files of a part in one of the layouts, and what reads them."""
    unpacked = find_unpacked(part, path)
    if unpacked is not None:
        return unpacked
    if CIFAR10.find(path) is None:
        _refuse_pickles(search_folders(CIFAR10.folders, path))
    return [CIFAR10.find_or_fetch(path)], partial(read_archive, names=BATCHES[part])


def find_unpacked(
    part: str, path: str | None
) -> tuple[list[Path], Callable[[Sequence[Path]], PixelsAndLabels]] | None:
    """Return the unpacked files of a part, if all are there, and what reads them."""
    folders, names = search_folders(CIFAR10.folders, path), BATCHES[part]
    arrays = [f"{part}_images{_number(name)}.npy.xz" for name in names] + [f"{part}_labels.npy"]
    plain = [find_file(folders, (f"{name}.bin", f"{UNPACKED}/{name}.bin")) for name in names]
    numpys = [find_file(folders, (name,)) for name in arrays]
    if None not in plain:
        return [file for file in plain if file], read_binary
    if None not in numpys:
        return [file for file in numpys if file], read_arrays
    return None


def read_binary(files: Sequence[Path]) -> PixelsAndLabels:
    """Read batches of the official binary version."""
    return _records([(str(path), path.read_bytes()) for path in files])


def read_archive(files: Sequence[Path], names: Sequence[str]) -> PixelsAndLabels:
    """Read batches inside the official archive; nothing is unpacked to disk."""
    (path,) = files
    try:
        with tarfile.open(path) as archive:
            members = [f"{UNPACKED}/{name}.bin" for name in names]
            return _records([(f"{path}, {name}", _member(archive, name)) for name in members])
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise UserError(
            f"{path}: expected the archive of CIFAR-10's binary version, cannot read it: {error}. "
            "Fetch it again."
        ) from None


def read_arrays(files: Sequence[Path]) -> PixelsAndLabels:
    """Read arrays of images (N, 32, 32, 3), xz-compressed, and one of all labels."""
    *images, labels = files
    return numpy.concatenate([_array(path, 4) for path in images]), _array(labels, 1)


def _records(batches: Sequence[tuple[str, bytes]]) -> PixelsAndLabels:
    """Return pixels and labels of records: a byte for the label, then the planes."""
    for source, data in batches:
        if not data or len(data) % RECORD:
            raise UserError(
                f"{source}: expected records of {RECORD} bytes, got {len(data)} bytes: it is "
                "damaged, or not CIFAR-10's binary version."
            )
    rows = numpy.frombuffer(b"".join(data for _, data in batches), numpy.uint8).reshape(-1, RECORD)
    planes = rows[:, 1:].reshape(-1, IMAGE_CHANNELS, IMAGE_SIDE, IMAGE_SIDE)
    return numpy.ascontiguousarray(planes.transpose(0, 2, 3, 1)), rows[:, 0].copy()


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)  # None if it is not a file
    if file is None:
        raise KeyError(f"{name} is not a file")
    with file:
        return file.read()


def _array(path: Path, axes: int) -> numpy.ndarray:
    array = read_packed_array(path)
    if array.dtype != numpy.uint8 or array.ndim != axes or array.shape[1:4] != IMAGE[: axes - 1]:
        expected = ("N", *IMAGE)[:axes]
        raise UserError(
            f"{path}: expected bytes of shape {expected}, got {array.dtype} {array.shape}."
        )
    return array


def _number(name: str) -> str:
    """Return the number of a training batch as its array's name has it."""
    return name.removeprefix("data_batch") if name.startswith("data_batch") else ""


def _refuse_pickles(folders: Sequence[Path]) -> None:
    path = find_file(folders, PICKLED)
    if path is not None:
        raise UserError(
            f"{path} is of CIFAR-10's python version: pickles, which may run any code and are "
            f"never read. Take the binary version, {CIFAR10.names[0]}, or run: falconcal data "
            "fetch cifar10"
        )


def compare_with_published() -> Iterator[tuple[str, bool]]:
    """Yield each batch of the binary version, and whether the images here give its bytes."""
    checksums = iter(PUBLISHED.split())
    for part, names in BATCHES.items():
        images = Cifar10()._images(part)
        planes = images.pixels.permute(0, 3, 1, 2).flatten(1)
        records = torch.cat([images.labels[:, None].byte(), planes], 1)  # (N, 3073)
        for name, batch in zip(names, records.chunk(len(names)), strict=True):
            checksum = hashlib.md5(batch.numpy().tobytes(), usedforsecurity=False).hexdigest()
            yield f"{name}.bin", checksum == next(checksums)
