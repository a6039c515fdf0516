"""Data frames and series, of pandas, polars and others, as arrays of numbers.

narwhals reads all of them, so none of their libraries is needed. Rows count by their order: an
index is not looked at. Columns of whole-number names, as scikit-learn's classes, are classes by
these names; labels that are words are matched by the columns' names.
"""

from typing import Any

import numpy
from torch import Tensor

from falconcal.errors import UserError, unknown_name_error

NEVER_TABLES = (numpy.ndarray, Tensor, list, tuple, str, dict, int, float)


def is_table(values: object) -> bool:
    """Return whether this is a data frame or a series."""
    return _native(values) is not None


def column_types(values: object) -> dict[str, Any]:
    """Return the type of each column of a frame, as narwhals has it; none of anything else."""
    found = _native(values)
    return dict(found.schema) if hasattr(found, "schema") else {}


def _native(values: object) -> Any:
    if values is None or isinstance(values, NEVER_TABLES):
        return None
    import narwhals  # only where something may be a table

    found: Any = narwhals.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    return found if isinstance(found, narwhals.DataFrame | narwhals.Series) else None


def numbers_of(values: object, what: str) -> numpy.ndarray | None:
    """Return the numbers of a frame (N, C) or a series (N,); None of anything else.

    Args:
        values: What was given.
        what: What it is, for messages.

    Raises:
        UserError: Values are missing, or a column of a frame holds no numbers.
    """
    found = _native(values)
    if found is None:
        return None
    columns = found.iter_columns() if hasattr(found, "iter_columns") else [found]
    for column in columns:
        _check_column(column, what, hasattr(found, "iter_columns"))
    array: numpy.ndarray = numpy.asarray(found.to_numpy())
    return array


def _check_column(column: Any, what: str, of_frame: bool) -> None:
    where = f" in the column {column.name!r}" if of_frame else ""
    missing = int(column.null_count())
    if missing:
        raise UserError(
            f"expected {what} without missing values, got {missing}{where}: fill them in, or leave "
            "these rows out."
        )
    if of_frame and not (column.dtype.is_numeric() or str(column.dtype) == "Boolean"):
        raise UserError(
            f"expected {what} as numbers, got {column.dtype}{where}: choose the columns of "
            "numbers, as in frame[names]."
        )


def label_numbers(labels: Any, rows: object) -> Any:
    """Return labels as numbers of the columns of a frame, where its columns name the classes.

    Args:
        labels: True classes, (N,).
        rows: What has one column per class, (N, C).

    Returns:
        The positions of the labels' columns, where the labels are words, or the columns have whole
        numbers as names; labels of -1 and all others as they came.

    Raises:
        UserError: A label is the name of no column.
    """
    frame = _native(rows)
    if not hasattr(frame, "iter_columns"):
        return labels
    names = [str(name) for name in frame.columns]
    given = numpy.asarray(labels)
    words = given.dtype.kind in "OUST"
    if given.ndim != 1 or not (words or _are_whole_numbers(names, given)):
        return labels
    position = {name: place for place, name in enumerate(names)}
    if not words:
        position.setdefault("-1", -1)
    found = {str(one): position.get(str(one)) for one in dict.fromkeys(given.tolist())}
    unknown = [name for name, place in found.items() if place is None]
    if unknown:
        raise unknown_name_error("label, no column of the probabilities,", unknown[0], position)
    return numpy.array([found[str(one)] for one in given.tolist()], dtype=numpy.int64)


def _are_whole_numbers(names: list[str], labels: numpy.ndarray) -> bool:
    return labels.dtype.kind in "iu" and all(name.isdecimal() for name in names)
