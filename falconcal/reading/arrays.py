"""NPZ: arrays ``labels`` (N,), ``probabilities`` or ``logits`` (N, C), maybe ``classes`` (C,)."""

from pathlib import Path

import numpy
import polars

from falconcal.errors import UserError
from falconcal.io.arrays import array_names, read_array
from falconcal.reading.table import Names, Table, check_there


def read_npz(path: Path, names: Names) -> Table:
    """Read the arrays that matter; pickled objects are never loaded."""
    label_name = names.labels if names.labels is not None else "labels"
    value_name = names.probabilities
    if value_name is None:
        value_name = "logits" if names.logits else "probabilities"
    there = array_names(path)
    check_there(path, "--labels", label_name, there, "array")
    check_there(path, "--probabilities", value_name, there, "array")
    if names.groups is not None:
        check_there(path, "--groups", names.groups, there, "array")
    values = _values(path, value_name)  # (N, C)
    groups = _column(path, names.groups, len(values)) if names.groups is not None else None
    classes = _classes(path, values.shape[1]) if "classes" in there else None
    columns = [f"{value_name}[:, {number}]" for number in range(values.shape[1])]
    return Table(
        path=path,
        place=lambda row: f"row {row} (from 0)",
        values=polars.from_numpy(values, schema=columns),
        labels=_column(path, label_name, len(values)),
        groups=groups,
        classes=classes or tuple(str(number) for number in range(values.shape[1])),
        named=classes is not None,
    )


def _values(path: Path, name: str) -> numpy.ndarray:
    values = read_array(path, name)
    if values.ndim != 2 or values.shape[1] < 2:
        raise UserError(
            f"{path}, array {name!r}: expected one row per example and one column per class, "
            f"at least 2, shape (N, C), got shape {values.shape}."
        )
    if values.dtype.kind not in "fiu":
        raise UserError(f"{path}, array {name!r}: expected numbers, got dtype {values.dtype}.")
    if len(values) == 0:
        raise UserError(f"{path}, array {name!r}: expected at least one example, got none.")
    return values.astype(numpy.float64)


def _column(path: Path, name: str, examples: int) -> polars.Series:
    column = read_array(path, name)
    if column.shape != (examples,):
        raise UserError(
            f"{path}, array {name!r}: expected one per example, shape ({examples},), got shape "
            f"{column.shape}."
        )
    if column.dtype.kind not in "fiubU":
        raise UserError(
            f"{path}, array {name!r}: expected numbers or text, got dtype {column.dtype}."
        )
    try:
        return polars.Series(name, column.tolist() if column.dtype.kind == "U" else column)
    except ValueError as error:  # a surrogate, or a number that is not a character
        raise UserError(
            f"{path}, array {name!r}: expected text that UTF-8 can hold: {error}."
        ) from None


def _classes(path: Path, count: int) -> tuple[str, ...]:
    """Return the names of the classes, when the file has an array of them."""
    names = tuple(_column(path, "classes", count).cast(polars.String))
    if len(set(names)) < count:
        raise UserError(f"{path}, array 'classes': expected {count} different names, got {names}.")
    return names
