"""A folder of images, and of folders of them: grey or colour, size and range as the model's."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor

from falconcal.errors import UserError
from falconcal.io.regular import first_line
from falconcal.predicting.source import BATCH, Batch, Source
from falconcal.saving import ModelFacts

MODES = {1: "L", 3: "RGB"}  # by channels


def open_images(folder: Path, facts: ModelFacts) -> Source:
    """Return the images of a folder in the order of their names; other files are passed over."""
    _check(facts)
    names = sorted(_image_names(folder))
    if not names:
        raise UserError(f"expected images in {folder}, found none: is it the right folder?")
    return Source("file", len(names), _images(folder, facts, names))


def read_image(path: Path, facts: ModelFacts) -> Tensor:
    """Return an image as the model takes it, (channels, H, W)."""
    channels, height, width = facts.shape
    with Image.open(path) as image:
        if image.mode[0] in "IF":
            raise ValueError(f"8 bits a channel are expected, its mode is {image.mode}")
        plain = image.convert(MODES[channels])
    if plain.size != (width, height):
        plain = plain.resize((width, height), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(numpy.array(plain, dtype=numpy.float32) / 255)
    return _scaled(pixels.reshape(height, width, channels).permute(2, 0, 1), facts)


def _scaled(pixels: Tensor, facts: ModelFacts) -> Tensor:
    """Bring pixels from [0, 1] to where the model's inputs are."""
    if facts.mean is not None and facts.deviation is not None:
        mean, deviation = (
            torch.tensor(numbers)[:, None, None] for numbers in (facts.mean, facts.deviation)
        )
        return (pixels - mean) / deviation
    assert facts.bounds is not None
    return facts.bounds.low + pixels * facts.bounds.range


def _check(facts: ModelFacts) -> None:
    if len(facts.shape) != 3 or facts.shape[0] not in MODES or facts.tokens is not None:
        raise UserError(
            f"expected a model of images with 1 or 3 channels, it was saved for examples of shape "
            f"{facts.shape}: give its inputs as CSV, NPY or NPZ."
        )
    if facts.bounds is None and facts.mean is None:
        raise UserError(
            "the model does not say what range its pixels have: save it with bounds, or with mean "
            "and deviation."
        )


def _image_names(folder: Path) -> Iterator[str]:
    known = Image.registered_extensions()
    for where, _, files in os.walk(folder):
        for name in files:
            if Path(name).suffix.lower() in known and not name.startswith("."):
                yield (Path(where) / name).relative_to(folder).as_posix()


def _images(folder: Path, facts: ModelFacts, names: Sequence[str]) -> Iterator[Batch]:
    for start in range(0, len(names), BATCH):
        part, pixels, damaged = names[start : start + BATCH], [], {}
        for name in part:
            try:
                pixels.append(read_image(folder / name, facts))
            except Exception as error:  # a decoder raises whatever it likes on damaged data
                damaged[name] = first_line(error)
        inputs = torch.stack(pixels) if pixels else torch.empty(0, *facts.shape)
        yield Batch(part, inputs, damaged)
