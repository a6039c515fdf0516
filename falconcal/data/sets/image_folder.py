"""Your own images: folders train, validation and test, with one folder per class in each.

Without validation, or test, a seeded share of the training images is held out for it. Images are
decoded once and kept as bytes; with ``stream`` they are read from disk as they are needed. Their
shorter side is scaled to ``size``, or to ``resize`` if more is to be cut off, and the middle is cut
out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy
import torch
from pydantic import Field

from falconcal.core.settings import Count, as_dict, settings
from falconcal.data.array_cache import cached_arrays
from falconcal.data.class_folders import PART_FOLDERS, HeldOut, LabelledFiles, list_parts
from falconcal.data.dataset import Dataset
from falconcal.data.images import PIXEL_BOUNDS, as_images
from falconcal.data.locations import given_folder, search_folders
from falconcal.data.part import Part
from falconcal.data.preparation import Channels, Preparation
from falconcal.data.streamed_images import StreamedImages
from falconcal.io.folders import irregular
from falconcal.io.image_files import ENDINGS, Framing, ImageReadError, read_image


@settings
class ImageFolder:
    """Your own images, with settings."""

    path: str
    """The folder."""

    size: Count
    """Height and width of an input, which is cut out of the middle."""

    resize: Count | None = None
    """The length that the shorter side is scaled to before the cut; None scales it to ``size``."""

    channels: Literal[1, 3] = 3
    """3 for colour, 1 for grey."""

    test: str | None = None
    """Another folder, with one folder per class, for the test part."""

    held_out: HeldOut = 0.1
    """The share of training images that is held out for each part without a folder."""

    mean: Channels | None = None
    """What the network subtracts from each channel of pixels from 0 to 1."""

    deviation: Channels | None = None
    """What the network divides each channel by after that."""

    stream: bool = False
    """Whether images are read from disk as they are needed, instead of kept in memory."""

    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that decode images; 0 decodes in this one."""

    def load(self) -> Dataset:
        (root,) = search_folders((), self.path)
        listed = list_parts(root, ENDINGS, self.held_out, given_folder(self.test))
        classes = listed["train"].classes
        train, validation, test = (self._part(root, name, listed[name]) for name in PART_FOLDERS)
        asked = self.mean is not None or self.deviation is not None
        preparation = Preparation(mean=self.mean, deviation=self.deviation) if asked else None
        return Dataset(
            "image_folder",
            "image",
            classes,
            PIXEL_BOUNDS,
            train,
            validation,
            test,
            preparation=preparation,
        )

    def _part(self, root: Path, name: str, listed: LabelledFiles) -> Part:
        framing = self._framing()
        labels = torch.from_numpy(listed.labels)
        if self.stream:
            return StreamedImages(listed.files, labels, listed.classes, framing, self.workers)

        def read() -> tuple[numpy.ndarray, ...]:
            return (numpy.stack([read_image(file, framing) for file in listed.files]),)

        _check_regular(listed.files)
        recipe = (name, as_dict(framing), self.held_out)
        (pixels,) = cached_arrays("image_folder", listed.files, read, *recipe)
        return as_images(pixels, listed.labels, listed.classes, root, framing)

    def _framing(self) -> Framing:
        return Framing(
            height=self.size, width=self.size, channels=self.channels, resize=self.resize
        )


def _check_regular(files: Sequence[Path]) -> None:
    """Refuse what is not a file before any is opened."""
    for file in files:
        reason = irregular(file)
        if reason is not None:
            raise ImageReadError(file, reason)
