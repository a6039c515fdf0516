"""Your own images: a folder of train, validation and test, in each a folder a class.

Without validation, or test, a seeded share of the training images serves. Images are decoded once
and kept as bytes; with ``stream`` they are read from disk as they are needed.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy
import torch
from pydantic import Field

from falconcal.data.decoded import decoded
from falconcal.data.examples import Dataset, Part
from falconcal.data.images import PIXELS, as_images
from falconcal.data.own_folders import PARTS, HeldOut, Listed, image_endings, list_parts
from falconcal.data.places import folders
from falconcal.data.preparation import Channels, Preparation
from falconcal.data.streamed import Framing, StreamedImages
from falconcal.settings import Count, settings


@settings
class ImageFolder:
    """Where the images lie, and what they become."""

    path: str
    size: Count  # height and width, to which images are brought
    channels: Literal[1, 3] = 3
    held_out: HeldOut = 0.1  # share of training images for each part that has no folder
    mean: Channels | None = None  # a channel, of pixels from 0 to 1; the network normalises
    deviation: Channels | None = None
    stream: bool = False
    workers: Annotated[int, Field(ge=0)] = 0

    def load(self) -> Dataset:
        (root,) = folders((), self.path)
        listed = list_parts(root, image_endings(), self.held_out)
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
        framing = Framing(self.size, channels=self.channels)
        labels = torch.from_numpy(listed.labels)
        if self.stream:
            return StreamedImages(listed.files, labels, listed.classes, framing, self.workers)

        def read() -> tuple[numpy.ndarray, ...]:
            return (numpy.stack([framing.read(file) for file in listed.files]),)

        recipe = (name, self.size, self.channels, self.held_out)
        (pixels,) = decoded("image_folder", listed.files, read, *recipe)
        return as_images(pixels, listed.labels, listed.classes, root)
