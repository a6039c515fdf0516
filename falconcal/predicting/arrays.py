"""NPY, mapped into memory, and NPZ, unpacked as it is read: (N, ...) with a row an example.

No array is ever held whole. NPZ files have one array, or one of the name ``inputs``.
"""

import math
import tokenize
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy
from numpy.lib import format as npy

from falconcal.errors import UserError
from falconcal.predicting.source import BATCH, Batch, Source, misshapen, row_batch
from falconcal.reading.arrays import DAMAGED as DAMAGED_ARCHIVE
from falconcal.reading.table import first_line
from falconcal.saving import ModelFacts

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
NAME = "inputs"
DAMAGED = (*DAMAGED_ARCHIVE, tokenize.TokenError)  # numpy reads a damaged header as Python


def open_npy(path: Path, facts: ModelFacts) -> Source:
    """Return the rows of an NPY file."""
    try:
        array = numpy.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGED as error:
        raise _damaged(path, error) from None
    _check(path, facts, array.shape, array.dtype)
    return Source("row", len(array), _mapped(path, facts, array))


def open_npz(path: Path, facts: ModelFacts) -> Source:
    """Return the rows of an array in an NPZ file."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(_member(path, archive)) as file:
            size, fortran, dtype = _header(file)
    except DAMAGED as error:
        if isinstance(error, UserError):
            raise
        raise _damaged(path, error) from None
    _check(path, facts, size, dtype)
    if fortran:
        raise UserError(f"{path}: expected rows in order: save numpy.ascontiguousarray(inputs).")
    return Source("row", size[0], _unpacked(path, facts))


def _mapped(path: Path, facts: ModelFacts, array: numpy.ndarray) -> Iterator[Batch]:
    for start in range(0, len(array), BATCH):
        yield row_batch(path, facts, start, _numbers(array[start : start + BATCH]))


def _unpacked(path: Path, facts: ModelFacts) -> Iterator[Batch]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(_member(path, archive)) as file:
            size, _, dtype = _header(file)
            row = math.prod(size[1:]) * dtype.itemsize
            for start in range(0, size[0], BATCH):
                count = min(BATCH, size[0] - start)
                values = numpy.frombuffer(file.read(count * row), dtype).reshape(count, *size[1:])
                yield row_batch(path, facts, start, _numbers(values))
    except DAMAGED as error:
        if isinstance(error, UserError):
            raise
        raise _damaged(path, error) from None


def _member(path: Path, archive: zipfile.ZipFile) -> str:
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    if NAME in names:
        return f"{NAME}.npy"
    if len(names) != 1:
        raise UserError(
            f"{path}: expected one array, or one of the name {NAME!r}, got {', '.join(names)}."
        )
    return archive.namelist()[0]


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, numpy.dtype]:
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"version {version} of the format is not known")
    return HEADERS[version](file)


def _check(path: Path, facts: ModelFacts, size: tuple[int, ...], dtype: numpy.dtype) -> None:
    if dtype.kind not in "fiub":
        raise UserError(f"{path}: expected numbers, got dtype {dtype}; objects are never loaded.")
    if size[1:] != facts.shape or not size:
        raise misshapen(path, facts, size)


def _numbers(values: numpy.ndarray) -> numpy.ndarray:
    """Return a copy in an order of bytes and of a type that torch has."""
    return values.astype(numpy.float64 if values.dtype.kind == "f" else numpy.int64)


def _damaged(path: Path, error: Exception) -> UserError:
    pickled = "pickle" in str(error) or "Python objects" in str(error)
    reason = "it holds pickled objects, which are never loaded" if pickled else first_line(error)
    return UserError(
        f"{path}: cannot be read as {path.suffix[1:].upper()}: {reason}. Is it whole, and written "
        "by numpy from numbers?"
    )
