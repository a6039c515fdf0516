"""ImageNet (ILSVRC 2012) from its folders, streamed: shorter side 256, the middle 224 x 224.

O. Russakovsky et al., IJCV 2015. ``train`` and ``val``, in each a folder a class by WordNet number.
The 50,000 validation images of the challenge test; validation is held out of training, the last ten
files of every class. The network normalises, the data is in pixels.
"""

from typing import Annotated

import numpy
import torch
from pydantic import Field

from falconcal.data.examples import Dataset
from falconcal.data.images import PIXELS
from falconcal.data.own_folders import Listed, list_files
from falconcal.data.places import folders
from falconcal.data.preparation import Preparation
from falconcal.data.streamed import StreamedImages
from falconcal.errors import UserError
from falconcal.io.image_files import ENDINGS, Framing
from falconcal.settings import Count, settings

FOLDERS = ("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
FRAMING = Framing(height=224, width=224, resize=256)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@settings
class ImageNet:
    """Where the folders lie, how many processes decode, how many images a class validate."""

    path: str | None = None
    workers: Annotated[int, Field(ge=0)] = 4
    held_out: Count = 10

    def load(self) -> Dataset:
        root = next(iter(folders(FOLDERS, self.path)), None)
        if root is None or not (root / "train").is_dir() or not (root / "val").is_dir():
            raise UserError(
                f"imagenet: expected a folder with train and val in it, looked at {root}: give it "
                "as path, or put it into the folder FALCONCAL_DATA as imagenet. It cannot be "
                "downloaded without an account at image-net.org."
            )
        whole = list_files(root / "train", ENDINGS)
        listed = (
            *hold_out_last(whole, self.held_out),
            list_files(root / "val", ENDINGS, whole.classes),
        )
        train, validation, test = (self._part(one) for one in listed)
        preparation = Preparation(mean=MEAN, deviation=DEVIATION)
        return Dataset(
            "imagenet",
            "image",
            whole.classes,
            PIXELS,
            train,
            validation,
            test,
            preparation=preparation,
        )

    def _part(self, listed: Listed) -> StreamedImages:
        labels = torch.from_numpy(listed.labels)
        return StreamedImages(listed.files, labels, listed.classes, FRAMING, self.workers)


def hold_out_last(listed: Listed, count: int) -> tuple[Listed, Listed]:
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
