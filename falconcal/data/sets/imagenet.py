"""ImageNet (ILSVRC 2012) from its folders, streamed: shorter side 256, the middle 224 x 224.

O. Russakovsky et al., IJCV 2015. ``train`` and ``val``, each with one folder per class, named by
WordNet number. The 50,000 validation images of the challenge are the test part; the last ten
training files of every class are for validation. The network normalises, the data is in pixels.
"""

from typing import Annotated

import numpy
import torch
from pydantic import Field

from falconcal.core.settings import Count, settings
from falconcal.data.class_folders import LabelledFiles, list_files
from falconcal.data.dataset import Dataset
from falconcal.data.images import PIXEL_BOUNDS
from falconcal.data.locations import search_folders
from falconcal.data.preparation import Preparation
from falconcal.data.streamed_images import StreamedImages
from falconcal.errors import UserError
from falconcal.io.image_files import ENDINGS, Framing

IMAGENET_FOLDERS = ("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
FRAMING = Framing(height=224, width=224, resize=256)
CHANNEL_MEANS, CHANNEL_DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@settings
class ImageNet:
    """ImageNet, with settings."""

    path: str | None = None
    """The folder that has train and val in it; by default it is looked for where data is kept."""

    workers: Annotated[int, Field(ge=0)] = 4
    """Processes that decode images; 0 decodes in this one."""

    held_out: Count = 10
    """Training images per class that are held out for validation."""

    def load(self) -> Dataset:
        root = next(iter(search_folders(IMAGENET_FOLDERS, self.path)), None)
        if root is None or not (root / "train").is_dir() or not (root / "val").is_dir():
            raise UserError(
                f"imagenet: expected a folder with train and val in it, got {root}: give it as "
                "path, or put it into the folder that FALCONCAL_DATA names, as imagenet. It cannot "
                "be downloaded without an account at image-net.org."
            )
        whole = list_files(root / "train", ENDINGS)
        listed = (
            *hold_out_last(whole, self.held_out),
            list_files(root / "val", ENDINGS, whole.classes),
        )
        train, validation, test = (self._part(one) for one in listed)
        preparation = Preparation(mean=CHANNEL_MEANS, deviation=CHANNEL_DEVIATIONS)
        return Dataset(
            "imagenet",
            "image",
            whole.classes,
            PIXEL_BOUNDS,
            train,
            validation,
            test,
            preparation=preparation,
        )

    def _part(self, listed: LabelledFiles) -> StreamedImages:
        labels = torch.from_numpy(listed.labels)
        return StreamedImages(listed.files, labels, listed.classes, FRAMING, self.workers)


def hold_out_last(listed: LabelledFiles, count: int) -> tuple[LabelledFiles, LabelledFiles]:
    """Return what stays, and the last files of every class."""
    last = numpy.zeros(len(listed.labels), dtype=bool)
    for label in range(len(listed.classes)):
        own = numpy.flatnonzero(listed.labels == label)
        if len(own) <= count:
            raise UserError(
                f"imagenet: expected more than {count} training images of class "
                f"{listed.classes[label]}, got {len(own)}."
            )
        last[own[-count:]] = True
    return listed.chosen(numpy.flatnonzero(~last)), listed.chosen(numpy.flatnonzero(last))
