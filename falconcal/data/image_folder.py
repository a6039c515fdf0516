"""Your own images: a folder of train, validation and test, in each a folder a class.

Without validation, or test, a seeded share of the training images serves. Images are decoded once
and kept as bytes; with ``stream`` they are read from disk as they are needed. Their shorter side is
scaled to ``size``, or to ``resize`` if more is to be cut off, and the middle cut out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy
import torch
from pydantic import Field

from falconcal.data.decoded import decoded
from falconcal.data.examples import Dataset, Part
from falconcal.data.images import PIXELS, as_images
from falconcal.data.own_folders import PARTS, HeldOut, Listed, list_parts
from falconcal.data.places import folders
from falconcal.data.preparation import Channels, Preparation
from falconcal.data.streamed import StreamedImages
from falconcal.io.folders import irregular
from falconcal.io.image_files import ENDINGS, Framing, ImageReadError, read_image
from falconcal.settings import Count, as_dict, settings


@settings
class ImageFolder:
    """Where the images lie, and what they become."""

    path: str
    size: Count  # height and width of what is cut out of the middle
    resize: Count | None = None  # what the shorter side is scaled to before; None: to size
    channels: Literal[1, 3] = 3
    held_out: HeldOut = 0.1  # share of training images for each part that has no folder
    mean: Channels | None = None  # a channel, of pixels from 0 to 1; the network normalises
    deviation: Channels | None = None
    stream: bool = False
    workers: Annotated[int, Field(ge=0)] = 0

    def load(self) -> Dataset:
        (root,) = folders((), self.path)
        listed = list_parts(root, ENDINGS, self.held_out)
        classes = listed["train"].classes
        train, validation, test = (self._part(root, name, listed[name]) for name in PARTS)
        asked = self.mean is not None or self.deviation is not None
        preparation = Preparation(mean=self.mean, deviation=self.deviation) if asked else None
        return Dataset(
            "image_folder",
            "image",
            classes,
            PIXELS,
            train,
            validation,
            test,
            preparation=preparation,
        )

    def _part(self, root: Path, name: str, listed: Listed) -> Part:
        framing = self._framing()
        labels = torch.from_numpy(listed.labels)
        if self.stream:
            return StreamedImages(listed.files, labels, listed.classes, framing, self.workers)

        def read() -> tuple[numpy.ndarray, ...]:
            return (numpy.stack([read_image(file, framing) for file in listed.files]),)

        _check_regular(listed.files)
        recipe = (name, as_dict(framing), self.held_out)
        (pixels,) = decoded("image_folder", listed.files, read, *recipe)
        return as_images(pixels, listed.labels, listed.classes, root, framing)

    def _framing(self) -> Framing:
        return Framing(
            height=self.size, width=self.size, channels=self.channels, resize=self.resize
        )


def _check_regular(files: Sequence[Path]) -> None:
    """Refuse what is no file before any is looked at."""
    for file in files:
        reason = irregular(file)
        if reason is not None:
            raise ImageReadError(file, reason)
