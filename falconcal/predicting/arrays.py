"""NPY, mapped into memory, and NPZ, unpacked as it is read: (N, ...) with one row per example.

No array is ever held whole. NPZ files have one array, or one of the name ``inputs``.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy

from falconcal.errors import UserError
from falconcal.io.arrays import array_names, array_rows, declared_array, mapped_array
from falconcal.predicting.source import BATCH, Batch, Source, misshapen, row_batch
from falconcal.saving import ModelFacts

NAME = "inputs"


def open_npy(path: Path, facts: ModelFacts) -> Source:
    """Return the rows of an NPY file."""
    array = mapped_array(path)
    _check(path, facts, array.shape, array.dtype)
    rows = (array[start : start + BATCH] for start in range(0, len(array), BATCH))
    return Source("row", len(array), _batches(path, facts, rows))


def open_npz(path: Path, facts: ModelFacts) -> Source:
    """Return the rows of an array in an NPZ file."""
    name = _choose(path)
    declared = declared_array(path, name)
    _check(path, facts, declared.shape, declared.dtype)
    rows = array_rows(path, name, BATCH)
    return Source("row", declared.shape[0], _batches(path, facts, rows))


def _batches(path: Path, facts: ModelFacts, parts: Iterable[numpy.ndarray]) -> Iterator[Batch]:
    start = 0
    for part in parts:
        yield row_batch(path, facts, start, _numbers(part))
        start += len(part)


def _choose(path: Path) -> str:
    names = array_names(path)
    if NAME in names:
        return NAME
    if len(names) != 1:
        raise UserError(
            f"{path}: expected one array, or one of the name {NAME!r}, got "
            f"{', '.join(names) or 'none'}."
        )
    return names[0]


def _check(path: Path, facts: ModelFacts, size: tuple[int, ...], dtype: numpy.dtype) -> None:
    if dtype.kind not in "fiub":
        raise UserError(f"{path}: expected numbers, got dtype {dtype}.")
    if size[1:] != facts.shape or not size:
        raise misshapen(path, facts, size)


def _numbers(values: numpy.ndarray) -> numpy.ndarray:
    """Return a copy in an order of bytes and of a type that torch has."""
    return values.astype(numpy.float64 if values.dtype.kind == "f" else numpy.int64)
