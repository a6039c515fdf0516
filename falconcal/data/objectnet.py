"""ObjectNet, objects in unusual places, for testing models of ImageNet: 1,000 classes, streamed.

A. Barbu et al., NeurIPS 2019. The unpacked ``objectnet-1.0``: ``images`` and ``mappings``. Of its
313 classes those that map to one class of ImageNet are known, as in the authors' code (104 of the
113 that are shared); those that map to none are outliers. The thin red border is cut off.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from falconcal.data.examples import Dataset
from falconcal.data.own_folders import image_endings
from falconcal.data.places import folders
from falconcal.data.streamed import Framing, StreamedImages
from falconcal.errors import UserError
from falconcal.settings import settings

FOLDERS = ("objectnet", "objectnet-1.0")
FRAMING = Framing(crop=224, resize=256, border=2)
OUTLIER = -1


@settings
class ObjectNet:
    """Which images: of classes that ImageNet has, or of others; where they lie."""

    images: Literal["known", "unknown"] = "known"
    path: str | None = None
    workers: Annotated[int, Field(ge=0)] = 4

    def load(self) -> Dataset:
        raise UserError(
            "objectnet is for testing alone, its authors forbid training on it: take imagenet as "
            "the dataset and objectnet as what it is tested on."
        )

    def load_test(self) -> StreamedImages:
        root = next(iter(folders(FOLDERS, self.path)), None)
        if root is None or not (root / "images").is_dir():
            raise UserError(
                f"objectnet: expected a folder with images and mappings in it, looked at {root}: "
                "give objectnet-1.0 as path, or put it into the folder FALCONCAL_DATA."
            )
        classes, label_of = read_mappings(root / "mappings")
        files = [
            (file, label_of[folder.name])
            for folder in sorted((root / "images").iterdir())
            if folder.name in label_of and (label_of[folder.name] == OUTLIER) == self._outliers
            for file in sorted(folder.iterdir())
            if file.suffix.lower() in image_endings()
        ]
        if not files:
            raise UserError(f"{root}: expected images of {self.images} classes, found none.")
        labels = torch.tensor([label for _, label in files])
        return StreamedImages([file for file, _ in files], labels, classes, FRAMING, self.workers)

    @property
    def _outliers(self) -> bool:
        return self.images == "unknown"


def read_mappings(folder: Path) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return ImageNet's classes in the usual order, and the label of each folder of images.

    Folders of several classes of ImageNet have no label: no answer could be called wrong.
    """
    lines = _contents(folder / "imagenet_to_label_2012_v2").splitlines()
    line_of = json.loads(_contents(folder / "pytorch_to_imagenet_2012_id.json"))
    shared = json.loads(_contents(folder / "objectnet_to_imagenet_1k.json"))
    named = json.loads(_contents(folder / "folder_to_objectnet_label.json"))
    classes = tuple(lines[line_of[str(number)]].strip() for number in range(len(line_of)))
    labels = {place: _label(shared.get(name), classes) for place, name in named.items()}
    return classes, {place: label for place, label in labels.items() if label is not None}


def _label(shared: Any, classes: tuple[str, ...]) -> int | None:
    if shared is None:
        return OUTLIER
    names = [name.strip() for name in str(shared).split(";")]
    return classes.index(names[0]) if len(names) == 1 else None


def _contents(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise UserError(f"objectnet: expected the file {path}, it is not there.") from None
