"""NPZ and NPY: arrays (N,) are columns, an array (N, C) has one column per class.

An NPZ file may have an array ``classes`` (C,), the names of the classes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
import polars

from falconcal.errors import UserError
from falconcal.inference.prediction_files.open_table import OpenTable, matrix_columns
from falconcal.io.array_files import (
    array_names,
    declared_array,
    mapped_array,
    read_array,
)
from falconcal.io.table_files import TableFile

ONE_ARRAY = "array"  # what the only array of an NPY file is called
Shapes = dict[str, tuple[int, ...]]


def open_npz_table(path: Path, *, header: bool) -> OpenTable:  # noqa: ARG001 - always named
    """Open the arrays of an NPZ file; pickled objects are never loaded."""
    shapes = {name: declared_array(path, name).shape for name in array_names(path)}
    classes = _class_names(path) if len(shapes.get("classes", ())) == 1 else None
    if classes is not None:
        del shapes["classes"]
    return _opened(path, shapes, lambda name: read_array(path, name), classes)


def open_npy_table(path: Path, *, header: bool) -> OpenTable:  # noqa: ARG001 - always named
    """Open the array of an NPY file."""
    array = mapped_array(path)
    return _opened(path, {ONE_ARRAY: array.shape}, lambda _: _native(array), None)


def _native(array: numpy.ndarray) -> numpy.ndarray:
    return numpy.array(array, array.dtype.newbyteorder("="))


def _opened(
    path: Path,
    shapes: Shapes,
    load: Callable[[str], numpy.ndarray],
    classes: tuple[str, ...] | None,
) -> OpenTable:
    matrices = {name: shape[1] for name, shape in shapes.items() if len(shape) == 2}
    owners = {
        column: (name, number)
        for name, width in matrices.items()
        for number, column in enumerate(matrix_columns(name, width))
    }
    columns = tuple(name for name in shapes if name not in matrices)

    def read(names: Sequence[str]) -> TableFile:
        needed = list(dict.fromkeys(owners.get(name, (name, 0))[0] for name in names))
        _check_lengths(path, {name: shapes[name] for name in needed})
        arrays = {name: _checked(path, name, load(name)) for name in needed}
        frame = {name: _column(path, name, arrays, owners) for name in names}
        return TableFile(path, lambda row: f"row {row} (from 0)", polars.DataFrame(frame))

    return OpenTable(path, columns, read, "array", matrices, classes)


def _check_lengths(path: Path, shapes: Shapes) -> None:
    """Refuse arrays of other shapes than (N,) and (N, C), and of different N."""
    for name, shape in shapes.items():
        if len(shape) not in (1, 2):
            raise UserError(
                f"{path}, array {name!r}: expected shape (N,) or (N, C), got shape {shape}."
            )
    lengths = {name: shape[0] for name, shape in shapes.items()}
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"{length:,} in {name!r}" for name, length in lengths.items())
        raise UserError(f"{path}: expected arrays of as many examples, got {words}.")


def _checked(path: Path, name: str, array: numpy.ndarray) -> numpy.ndarray:
    numbers_only = array.ndim == 2
    if array.dtype.kind not in ("fiu" if numbers_only else "fiubU"):
        wanted = "numbers" if numbers_only else "numbers or text"
        raise UserError(f"{path}, array {name!r}: expected {wanted}, got dtype {array.dtype}.")
    if len(array) == 0:
        raise UserError(f"{path}, array {name!r}: expected at least one example, got none.")
    return array


def _column(
    path: Path, name: str, arrays: dict[str, numpy.ndarray], owners: dict[str, tuple[str, int]]
) -> polars.Series:
    if name in owners:
        owner, number = owners[name]
        return polars.Series(name, arrays[owner][:, number].astype(numpy.float64))
    return _series(path, name, arrays[name])


def _series(path: Path, name: str, array: numpy.ndarray) -> polars.Series:
    if array.dtype.kind == "f":
        array = array.astype(numpy.float64)
    try:
        return polars.Series(name, array.tolist() if array.dtype.kind == "U" else array)
    except ValueError as error:  # a surrogate, or a number that is not a character
        raise UserError(
            f"{path}, array {name!r}: expected text that UTF-8 can hold: {error}."
        ) from None


def _class_names(path: Path) -> tuple[str, ...]:
    """Return the names of the classes, which the file has an array of."""
    array = _checked(path, "classes", read_array(path, "classes"))
    names = tuple(_series(path, "classes", array).cast(polars.String))
    if len(set(names)) < len(names):
        raise UserError(
            f"{path}, array 'classes': expected {len(names)} different names, got {names}."
        )
    return names
