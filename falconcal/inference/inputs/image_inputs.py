"""A folder of images, and of folders of them: framed as in training, in the model's range."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from falconcal.data.images import as_floats, in_range
from falconcal.errors import UserError
from falconcal.inference.inputs.input_source import BATCH, InputBatch, InputSource
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.io.folders import files_below
from falconcal.io.image_files import (
    ENDINGS,
    Framing,
    ImageReadError,
    framing_of_shape,
    is_image_shape,
    read_image,
)


def open_images(folder: Path, metadata: ModelMetadata) -> InputSource:
    """Return the images of a folder in the order of their names; other files are skipped."""
    check_takes_images(metadata)
    names = sorted(file.relative_to(folder).as_posix() for file in files_below(folder, ENDINGS))
    if not names:
        raise UserError(f"expected images in {folder}, found none: is it the right folder?")
    return InputSource("file", len(names), _images(folder, metadata, names))


def read_input(path: Path, metadata: ModelMetadata) -> Tensor:
    """Return an image as the model takes it, (channels, H, W)."""
    pixels = torch.from_numpy(read_image(path, framing_in(metadata)))[None]  # (1, H, W, channels)
    return pixels_to_inputs(pixels, metadata)[0]


def pixels_to_inputs(pixels: Tensor, metadata: ModelMetadata) -> Tensor:
    """Return bytes as the model takes them: (N, H, W, channels) -> (N, channels, H, W)."""
    if metadata.mean is None or metadata.deviation is None:
        return in_range(pixels, metadata.bounds)
    mean, deviation = (
        torch.tensor(numbers)[:, None, None] for numbers in (metadata.mean, metadata.deviation)
    )
    return (as_floats(pixels) - mean) / deviation


def framing_in(metadata: ModelMetadata) -> Framing:
    """Return how images are framed for a model.

    A file of format 1 does not state it. The versions that wrote it stretched images to the model's
    size, in ``predict`` and in training on a folder of images, so that is done here.
    """
    return metadata.framing or framing_of_shape(metadata.shape, stretch=True)


def check_takes_images(metadata: ModelMetadata) -> None:
    """Refuse a model that does not take images, or does not say the range of its pixels."""
    if not is_image_shape(metadata.shape) or metadata.tokens is not None:
        raise UserError(
            f"expected a model of images with 1 or 3 channels, it was saved for examples of shape "
            f"{metadata.shape}: give its inputs as CSV, NPY or NPZ."
        )
    check_states_range(metadata)


def check_states_range(metadata: ModelMetadata) -> None:
    """Refuse a model that does not say which range its pixels have."""
    if metadata.bounds is None and metadata.mean is None:
        raise UserError(
            "the model file does not state the range of its pixels: save it with bounds, or with "
            "mean and deviation."
        )


def _images(folder: Path, metadata: ModelMetadata, names: Sequence[str]) -> Iterator[InputBatch]:
    for start in range(0, len(names), BATCH):
        part, pixels, damaged = names[start : start + BATCH], [], {}
        for name in part:
            try:
                pixels.append(read_input(folder / name, metadata))
            except ImageReadError as error:
                damaged[name] = error.reason
        inputs = torch.stack(pixels) if pixels else torch.empty(0, *metadata.shape)
        yield InputBatch(part, inputs, damaged)
