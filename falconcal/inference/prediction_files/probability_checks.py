"""Turn columns into checked probabilities; an error names the row and the column."""

from dataclasses import dataclass

import numpy
import polars

from falconcal.inference.prediction_files.read_options import Layout
from falconcal.inference.prediction_files.true_classes import NAMEABLE
from falconcal.io.table_files import Rows
from falconcal.metrics.predictions import SUM_TOLERANCE

SUM_ROUNDING = 0.1  # how far from 1 a row may sum and still be off by rounding


@dataclass(frozen=True, eq=False)
class RawPredictions(Rows):
    """The content of a file, not yet checked."""

    layout: Layout
    values: polars.DataFrame  # (N, C), columns named as messages name them
    predictions: polars.Series | None  # (N,)
    groups: polars.Series | None  # (N,)


def probability_matrix(table: RawPredictions, *, logits: bool, normalise: bool) -> numpy.ndarray:
    """Return the numbers of all classes, (N, C), each row a distribution or a row of logits."""
    values = numpy.stack([table.numbers(column) for column in table.values], 1)  # (N, C)
    if logits:
        check_stored_logits(table, values)
        return values
    check_inside(table, values)
    return _normalised(table, values) if normalise else _summing_to_one(table, values)


def group_names(table: RawPredictions) -> tuple[str, ...] | None:
    """Return the name of each example's group; an empty cell is refused."""
    if table.groups is None:
        return None
    table.check_filled(table.groups)
    groups = table.groups
    if not (groups.dtype.is_integer() or groups.dtype.is_float() or groups.dtype in NAMEABLE):
        raise table.problem(f"expected text or numbers, got {groups.dtype}.", column=groups.name)
    return tuple(groups.cast(polars.String))


def check_inside(table: RawPredictions, values: numpy.ndarray) -> None:
    """Refuse numbers (N, C) that are no probabilities."""
    inside = (values >= 0) & (values <= 1 + SUM_TOLERANCE)  # written so that NaN is outside
    _refuse(
        table,
        values,
        ~inside,
        "expected a probability from 0 to 1",
        "are they logits? Then add --logits",
    )


def check_stored_logits(table: RawPredictions, values: numpy.ndarray) -> None:
    """Refuse numbers (N, C) that are no logits."""
    _refuse(
        table,
        values,
        numpy.isposinf(values),
        "expected a finite logit",
        "has training diverged? Only minus infinity is allowed, for probability 0",
    )
    nothing = numpy.isneginf(values).all(1)
    if nothing.any():
        words = "expected a finite logit for at least one class, got minus infinity for all."
        raise table.problem(words, int(nothing.argmax()))


def _summing_to_one(table: RawPredictions, values: numpy.ndarray) -> numpy.ndarray:
    sums = values.sum(1)  # (N,)
    bad = numpy.abs(sums - 1) > SUM_TOLERANCE
    if bad.any():
        row = int(bad.argmax())
        rounded = numpy.abs(sums - 1).max() <= SUM_ROUNDING
        remedy = "is it rounding? Then add --normalise." if rounded else "is a class missing?"
        words = f"{_sum_words(table, sums[row])}: {remedy} For logits add --logits."
        raise table.problem(words, row)
    return values


def _normalised(table: RawPredictions, values: numpy.ndarray) -> numpy.ndarray:
    """Return rows divided by their sums, which may be off 1 by rounding, not by a class."""
    sums = values.sum(1)  # (N,)
    bad = numpy.abs(sums - 1) > SUM_ROUNDING
    if bad.any():
        row = int(bad.argmax())
        words = _sum_words(table, sums[row], SUM_ROUNDING)
        raise table.problem(f"{words}: that is more than rounding. Is a class missing?", row)
    divided: numpy.ndarray = values / sums[:, None]
    return divided


def _sum_words(table: RawPredictions, came: float, within: float = SUM_TOLERANCE) -> str:
    names = table.values.columns
    return (
        f"expected probabilities that sum to 1, within {within}, got {came:.6g} as the sum of the "
        f"{len(names)} columns {names[0]!r} to {names[-1]!r}"
    )


def _refuse(
    table: RawPredictions, values: numpy.ndarray, bad: numpy.ndarray, expected: str, remedy: str
) -> None:
    """Refuse the first cell that is bad: (N, C) of them."""
    if bad.any():
        row = int(bad.any(1).argmax())
        column = int(bad[row].argmax())
        came = f"{values[row, column]:.6g}"
        name = table.values.columns[column]
        raise table.problem(f"{expected}, got {came}: {remedy}.", row, name)
