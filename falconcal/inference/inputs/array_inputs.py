"""NPY, mapped into memory, and NPZ, unpacked as it is read: (N, ...) with one row per example.

No array is ever held whole. NPZ files have one array, or one of the name ``inputs``. Bytes with
channels last are pixels, as in image files.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy
import torch

from falconcal.errors import UserError
from falconcal.inference.inputs.image_inputs import check_states_range, pixels_to_inputs
from falconcal.inference.inputs.input_source import (
    BATCH,
    InputBatch,
    InputSource,
    misshapen,
    row_batch,
)
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.io.array_files import array_names, array_rows, declared_array, mapped_array

INPUTS_ARRAY = "inputs"


def open_npy(path: Path, metadata: ModelMetadata) -> InputSource:
    """Return the rows of an NPY file."""
    array = mapped_array(path)
    check_array(path, metadata, array.shape, array.dtype)
    rows = (array[start : start + BATCH] for start in range(0, len(array), BATCH))
    return InputSource("row", len(array), _batches(path, metadata, rows))


def open_npz(path: Path, metadata: ModelMetadata) -> InputSource:
    """Return the rows of an array in an NPZ file."""
    name = _choose(path)
    declared = declared_array(path, name)
    check_array(path, metadata, declared.shape, declared.dtype)
    rows = array_rows(path, name, BATCH)
    return InputSource("row", declared.shape[0], _batches(path, metadata, rows))


def _batches(
    path: Path, metadata: ModelMetadata, parts: Iterable[numpy.ndarray]
) -> Iterator[InputBatch]:
    start = 0
    for part in parts:
        yield array_batch(path, metadata, start, part)
        start += len(part)


def _choose(path: Path) -> str:
    names = array_names(path)
    if INPUTS_ARRAY in names:
        return INPUTS_ARRAY
    if len(names) != 1:
        raise UserError(
            f"{path}: expected one array, or one of the name {INPUTS_ARRAY!r}, got "
            f"{', '.join(names) or 'none'}."
        )
    return names[0]


def check_array(
    path: Path, metadata: ModelMetadata, size: tuple[int, ...], dtype: numpy.dtype
) -> None:
    """Refuse an array that has no numbers, or another shape than the model's inputs."""
    if dtype.kind not in "fiub":
        raise UserError(f"{path}: expected numbers as inputs, got dtype {dtype}: convert them.")
    if _are_pixels(metadata, size, dtype):
        check_states_range(metadata)
    elif size[1:] != metadata.shape or not size or _are_scaled_bytes(metadata, dtype):
        raise misshapen(path, metadata, size, dtype)


def array_batch(
    path: Path, metadata: ModelMetadata, start: int, values: numpy.ndarray
) -> InputBatch:
    """Return rows of a checked array, from number ``start`` on, as the model takes them."""
    if not _are_pixels(metadata, values.shape, values.dtype):
        return row_batch(path, metadata, start, _numbers(values))
    channels_last = values[..., None] if values.ndim == 3 else values
    inputs = pixels_to_inputs(torch.from_numpy(channels_last.copy()), metadata)
    return InputBatch(range(start, start + len(inputs)), inputs)


def _are_pixels(metadata: ModelMetadata, size: tuple[int, ...], dtype: numpy.dtype) -> bool:
    """Return whether these are bytes with channels last: (N, H, W) or (N, H, W, channels)."""
    if dtype != numpy.uint8 or metadata.tokens is not None or len(metadata.shape) != 3:
        return False
    channels, height, width = metadata.shape
    return size[1:] in ((height, width, channels), *([(height, width)] if channels == 1 else []))


def _are_scaled_bytes(metadata: ModelMetadata, dtype: numpy.dtype) -> bool:
    """Return whether these are bytes for a network of normalised pixels, which no byte is."""
    return dtype == numpy.uint8 and metadata.mean is not None


def _numbers(values: numpy.ndarray) -> numpy.ndarray:
    """Return a copy in an order of bytes and of a type that torch has."""
    return values.astype(numpy.float64 if values.dtype.kind == "f" else numpy.int64)
