"""NPZ: arrays ``labels`` (N,), ``probabilities`` or ``logits`` (N, C), maybe ``classes`` (C,)."""

import zipfile
import zlib
from pathlib import Path

import numpy
import polars

from falconcal.errors import UserError
from falconcal.reading.table import Names, Table, check_there, first_line

DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,  # zipfile's, of a compression or an encryption that it does not know
    MemoryError,
)


def read_npz(path: Path, names: Names) -> Table:
    """Read the arrays that matter; pickled objects are never loaded."""
    label_name = names.labels if names.labels is not None else "labels"
    value_name = names.probabilities
    if value_name is None:
        value_name = "logits" if names.logits else "probabilities"
    there = _names_of(path)
    check_there(path, "--labels", label_name, there, "array")
    check_there(path, "--probabilities", value_name, there, "array")
    if names.groups is not None:
        check_there(path, "--groups", names.groups, there, "array")
    values = _values(path, value_name)  # (N, C)
    groups = _column(path, names.groups, len(values)) if names.groups is not None else None
    classes = _classes(path, values.shape[1]) if "classes" in there else None
    return Table(
        path,
        polars.from_numpy(values, schema=[f"{value_name}[:, {k}]" for k in range(values.shape[1])]),
        _column(path, label_name, len(values)),
        groups,
        classes or tuple(str(k) for k in range(values.shape[1])),
        classes is not None,
        lambda row: f"row {row} (from 0)",
    )


def _names_of(path: Path) -> list[str]:
    if path.stat().st_size == 0:
        raise UserError(f"{path}: expected arrays, got an empty file.")
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except DAMAGED as error:
        raise _damaged(path, error) from None


def _array(path: Path, name: str) -> numpy.ndarray:
    try:
        with numpy.load(path, allow_pickle=False) as arrays:
            array = arrays[name]
    except DAMAGED as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"{path}, array {name!r}: expected numbers or text, got pickled Python objects, "
                "which are never loaded: save it with a dtype of numbers or text."
            ) from None
        raise _damaged(path, error) from None
    if not isinstance(array, numpy.ndarray):
        raise UserError(
            f"{path}: expected {name!r} to be an array, got other bytes: use numpy.savez."
        )
    return array


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path}: cannot be read as NPZ: {first_line(error)}. Is it whole, and written by "
        "numpy.savez?"
    )


def _values(path: Path, name: str) -> numpy.ndarray:
    values = _array(path, name)
    if values.ndim != 2 or values.shape[1] < 2:
        raise UserError(
            f"{path}, array {name!r}: expected a row an example and a column a class, at least 2, "
            f"shape (N, C), got shape {values.shape}."
        )
    if values.dtype.kind not in "fiu":
        raise UserError(f"{path}, array {name!r}: expected numbers, got dtype {values.dtype}.")
    if len(values) == 0:
        raise UserError(f"{path}, array {name!r}: expected at least one example, got none.")
    return values.astype(numpy.float64)


def _column(path: Path, name: str, examples: int) -> polars.Series:
    column = _array(path, name)
    if column.shape != (examples,):
        raise UserError(
            f"{path}, array {name!r}: expected one an example, shape ({examples},), got shape "
            f"{column.shape}."
        )
    if column.dtype.kind not in "fiubU":
        raise UserError(
            f"{path}, array {name!r}: expected numbers or text, got dtype {column.dtype}."
        )
    try:
        return polars.Series(name, column.tolist() if column.dtype.kind == "U" else column)
    except UnicodeEncodeError as error:
        raise UserError(
            f"{path}, array {name!r}: expected text that UTF-8 can hold: {error}."
        ) from None


def _classes(path: Path, count: int) -> tuple[str, ...]:
    """Return the names of the classes, when the file has an array of them."""
    names = tuple(_column(path, "classes", count).cast(polars.String))
    if len(set(names)) < count:
        raise UserError(f"{path}, array 'classes': expected {count} different names, got {names}.")
    return names
