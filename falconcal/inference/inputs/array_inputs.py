"""NPY, mapped into memory, and NPZ, unpacked as it is read: (N, ...) with one row per example.

No array is ever held whole. NPZ files have one array, or one of the name ``inputs``.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy

from falconcal.errors import UserError
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
    _check(path, metadata, array.shape, array.dtype)
    rows = (array[start : start + BATCH] for start in range(0, len(array), BATCH))
    return InputSource("row", len(array), _batches(path, metadata, rows))


def open_npz(path: Path, metadata: ModelMetadata) -> InputSource:
    """Return the rows of an array in an NPZ file."""
    name = _choose(path)
    declared = declared_array(path, name)
    _check(path, metadata, declared.shape, declared.dtype)
    rows = array_rows(path, name, BATCH)
    return InputSource("row", declared.shape[0], _batches(path, metadata, rows))


def _batches(
    path: Path, metadata: ModelMetadata, parts: Iterable[numpy.ndarray]
) -> Iterator[InputBatch]:
    start = 0
    for part in parts:
        yield row_batch(path, metadata, start, _numbers(part))
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


def _check(path: Path, metadata: ModelMetadata, size: tuple[int, ...], dtype: numpy.dtype) -> None:
    if dtype.kind not in "fiub":
        raise UserError(f"{path}: expected numbers, got dtype {dtype}.")
    if size[1:] != metadata.shape or not size:
        raise misshapen(path, metadata, size)


def _numbers(values: numpy.ndarray) -> numpy.ndarray:
    """Return a copy in an order of bytes and of a type that torch has."""
    return values.astype(numpy.float64 if values.dtype.kind == "f" else numpy.int64)
