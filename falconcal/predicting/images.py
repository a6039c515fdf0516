"""A folder of images, and of folders of them: framed as in training, in the model's range."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from falconcal.data.images import as_floats, in_range
from falconcal.errors import UserError
from falconcal.io.folders import files_below
from falconcal.io.image_files import (
    ENDINGS,
    Framing,
    ImageReadError,
    framing_of_shape,
    is_image_shape,
    read_image,
)
from falconcal.predicting.source import BATCH, Batch, Source
from falconcal.saving import ModelFacts


def open_images(folder: Path, facts: ModelFacts) -> Source:
    """Return the images of a folder in the order of their names; other files are passed over."""
    _check(facts)
    names = sorted(file.relative_to(folder).as_posix() for file in files_below(folder, ENDINGS))
    if not names:
        raise UserError(f"expected images in {folder}, found none: is it the right folder?")
    return Source("file", len(names), _images(folder, facts, names))


def read_input(path: Path, facts: ModelFacts) -> Tensor:
    """Return a picture as the model takes it, (channels, H, W)."""
    pixels = torch.from_numpy(read_image(path, framing_in(facts)))[None]  # (1, H, W, channels)
    if facts.mean is None or facts.deviation is None:
        return in_range(pixels, facts.bounds)[0]
    mean, deviation = (
        torch.tensor(numbers)[:, None, None] for numbers in (facts.mean, facts.deviation)
    )
    return (as_floats(pixels)[0] - mean) / deviation


def framing_in(facts: ModelFacts) -> Framing:
    """Return how pictures are framed for a model.

    A file of format 1 does not say. Whoever wrote it stretched pictures to the model's size, in
    ``predict`` and where a model was trained on a folder of images, so that is what it implies.
    """
    return facts.framing or framing_of_shape(facts.shape, stretch=True)


def _check(facts: ModelFacts) -> None:
    if not is_image_shape(facts.shape) or facts.tokens is not None:
        raise UserError(
            f"expected a model of images with 1 or 3 channels, it was saved for examples of shape "
            f"{facts.shape}: give its inputs as CSV, NPY or NPZ."
        )
    if facts.bounds is None and facts.mean is None:
        raise UserError(
            "the model does not say what range its pixels have: save it with bounds, or with mean "
            "and deviation."
        )


def _images(folder: Path, facts: ModelFacts, names: Sequence[str]) -> Iterator[Batch]:
    for start in range(0, len(names), BATCH):
        part, pixels, damaged = names[start : start + BATCH], [], {}
        for name in part:
            try:
                pixels.append(read_input(folder / name, facts))
            except ImageReadError as error:
                damaged[name] = error.reason
        inputs = torch.stack(pixels) if pixels else torch.empty(0, *facts.shape)
        yield Batch(part, inputs, damaged)
