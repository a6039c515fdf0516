"""True classes as columns of 0 and 1, one per class, as some solution files have them."""

from collections.abc import Sequence

import numpy
import polars

from falconcal.inference.prediction_files.file_forms import CLASS_PREFIXES
from falconcal.inference.prediction_files.open_table import OpenTable
from falconcal.io.table_files import TableFile


def one_hot_columns(predictions: OpenTable, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a file of truth that are called as columns of the predictions are.

    Args:
        predictions: The file beside which the truth stands.
        names: The columns of the truth that may hold labels.

    Returns:
        All of them where the predictions have them all, and they are at least two; else none.
    """
    same = len(names) > 1 and set(names) <= set(predictions.columns)
    return tuple(names) if same else ()


def one_hot_labels(truth: TableFile, columns: Sequence[str]) -> polars.Series:
    """Return the names of the classes that have the 1, (N,).

    Args:
        truth: The rows, read.
        columns: The columns of the classes.

    Raises:
        UserError: A cell is neither 0 nor 1, or a row has not exactly one 1.
    """
    values = numpy.stack([truth.numbers(truth.frame[name]) for name in columns], 1)  # (N, C)
    wrong = numpy.argwhere((values != 0) & (values != 1))
    if len(wrong):
        row, place = (int(number) for number in wrong[0])
        raise truth.problem(
            f"expected 0 or 1, since each class of the predictions has a column here, got "
            f"{values[row, place]:g}: one column of true classes is named with --labels.",
            row,
            columns[place],
        )
    counts = values.sum(1)
    if (counts != 1).any():
        row = int(numpy.argmax(counts != 1))
        raise truth.problem(
            f"expected one 1 among the columns {columns[0]!r} to {columns[-1]!r}, got "
            f"{counts[row]:g}: an example has one true class here.",
            row,
        )
    names = numpy.array(class_names(columns))[values.argmax(1)]
    return polars.Series(f"{columns[0]} to {columns[-1]}", names.tolist(), polars.String)


def class_names(columns: Sequence[str]) -> list[str]:
    """Return the classes in the names of columns: without what all begin with, such as p_."""
    shared = [one for one in CLASS_PREFIXES if all(name.startswith(one) for name in columns)]
    prefix = shared[0] if shared else ""
    return [name.removeprefix(prefix) for name in columns]
