"""ImageNet's validation images alone, for models that others have trained: fit on one half, test.

The folder ``val`` with one folder per class, named by WordNet number, or ``val_1.tar`` and so on of
the same layout; some images of every class are enough. By name, the first half of every class is
for fitting (in turn for training and validation) and the second half is the test part. ReaL labels
(L. Beyer et al., "Are we done with ImageNet?", 2020), ``real.json`` or ``real_labels.json``, say
what people see in an image: one thing, several, or none of the classes.
"""

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy
import torch

from falconcal.core.settings import settings
from falconcal.data.array_cache import cached_arrays
from falconcal.data.dataset import Dataset
from falconcal.data.images import PIXEL_BOUNDS, Images, as_images
from falconcal.data.locations import find_folder, require_file
from falconcal.data.preparation import Preparation
from falconcal.data.sets.imagenet import CHANNEL_DEVIATIONS, CHANNEL_MEANS, FRAMING
from falconcal.data.subsets import select
from falconcal.errors import UserError
from falconcal.io.folders import files_below
from falconcal.io.image_files import ENDINGS, read_image, read_packed_image
from falconcal.io.parsing import parse_json

VALIDATION_FOLDERS = ("imagenet-val", "imagenet_val")
REAL_FILES = ("real.json", "real_labels.json")
REAL_ORIGIN = "google-research/reassessed-imagenet (real.json)"
REAL_NAME = "ILSVRC2012_val_{:08}.JPEG"  # of image number N, from 1

NamedImage = tuple[str, str]  # the WordNet number and the name of the file
Decoded = tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]  # pixels, WordNet numbers, names


@settings
class ImageNetVal:
    """ImageNet's validation images, with settings."""

    labels: Literal["usual", "real"] = "usual"
    """The challenge's labels, or ReaL ones of the test images in which people see one class."""

    path: str | None = None
    """The folder; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        images, names = self._images()
        first, second = halves(images.labels)
        train, validation = (select(images, which) for which in (first[::2], first[1::2]))
        test = select(images, second)
        if self.labels == "real":
            test = self._with_real(test, [names[index] for index in second.tolist()])
        preparation = Preparation(mean=CHANNEL_MEANS, deviation=CHANNEL_DEVIATIONS)
        return Dataset(
            "imagenet_val", "image", images.classes, PIXEL_BOUNDS, train, validation, test,
            preparation=preparation,
        )  # fmt: skip

    def test_names(self) -> list[str]:
        """Return the names of the files of the test part, in order."""
        images, names = self._images()
        return [names[index] for index in halves(images.labels)[1].tolist()]

    def real_labels(self) -> dict[str, list[int]]:
        """Return what people see in each image, by the name of its file."""
        return read_real(
            require_file("imagenet_val", VALIDATION_FOLDERS, REAL_FILES, self.path, REAL_ORIGIN)
        )

    def _with_real(self, test: Any, names: Sequence[str]) -> Images:
        seen = self.real_labels()
        single = [(row, seen[name][0]) for row, name in enumerate(names) if len(seen[name]) == 1]
        rows, labels = (torch.tensor(column) for column in zip(*single, strict=True))
        chosen: Images = replace(test, pixels=test.pixels[rows], labels=labels)
        return chosen

    def _images(self) -> tuple[Images, list[str]]:
        root = find_folder("imagenet_val", VALIDATION_FOLDERS, self.path)
        archives = sorted(root.glob("val*.tar"))
        files = archives or files_below(root / "val", ENDINGS)
        if not files:
            raise UserError(
                f"imagenet_val: expected the folder val or val_1.tar in {root}, found no images: "
                "it cannot be downloaded without an account at image-net.org."
            )
        pixels, synsets, names = cached_arrays("imagenet_val", files, lambda: _decode(files))
        classes = tuple(sorted(set(synsets.tolist())))
        numbers = numpy.searchsorted(numpy.array(classes), synsets)
        return as_images(pixels, numbers, classes, root, FRAMING), names.tolist()


def halves(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of the first and the second half of every class, each in order."""
    ordered = [(labels == label).nonzero()[:, 0] for label in sorted(set(labels.tolist()))]
    first = torch.cat([own[: (len(own) + 1) // 2] for own in ordered])
    second = torch.cat([own[(len(own) + 1) // 2 :] for own in ordered])
    return first.sort().values, second.sort().values


def read_real(file: Path) -> dict[str, list[int]]:
    """Return ReaL labels by the name of the image; the authors' list is in the order of images."""
    stored = parse_json(file.read_text(encoding="utf-8"))
    if isinstance(stored, list):
        stored = {REAL_NAME.format(number): seen for number, seen in enumerate(stored, start=1)}
    if not isinstance(stored, dict):
        raise UserError(f"{file}: expected lists of labels, got {type(stored).__name__}.")
    return stored


def _decode(files: Sequence[Path]) -> Decoded:
    """Return all images in the order of class and name."""
    found = sorted(_read_all(files), key=lambda one: one[0])
    names = [name for name, _ in found]
    pixels = numpy.stack([image for _, image in found])
    return pixels, numpy.array([one[0] for one in names]), numpy.array([one[1] for one in names])


def _read_all(files: Sequence[Path]) -> Iterator[tuple[NamedImage, numpy.ndarray]]:
    for file in files:
        if file.suffix != ".tar":
            yield (file.parent.name, file.name), read_image(file, FRAMING)
            continue
        with tarfile.open(file) as archive:
            for member in archive:
                packed = archive.extractfile(member)
                if packed is not None:
                    place = PurePosixPath(member.name)
                    image = read_packed_image(packed.read(), file / place, FRAMING)
                    yield (place.parent.name, place.name), image
