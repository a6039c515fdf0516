"""Turn a table into checked numbers; an error names the row and the column."""

import numpy
import polars

from falconcal.errors import did_you_mean
from falconcal.inference.prediction_files.columns import RawPredictions
from falconcal.io.table_files import shown
from falconcal.metrics.predictions import SUM_TOLERANCE

GROUPABLE = (polars.String, polars.Categorical, polars.Enum, polars.Boolean, polars.Date)


def probability_matrix(table: RawPredictions, *, logits: bool) -> numpy.ndarray:
    """Return the numbers of all classes, (N, C), each row a distribution or a row of logits."""
    columns = [table.numbers(column) for column in table.values]
    values = numpy.stack(columns, 1)  # (N, C)
    if logits:
        _check_logits(table, values)
    else:
        _check_probabilities(table, values)
    return values


def label_numbers(table: RawPredictions) -> numpy.ndarray:
    """Return the number of each example's class, (N,)."""
    table.check_filled(table.labels)
    return _named_labels(table) if table.named else _whole_labels(table)


def group_names(table: RawPredictions) -> tuple[str, ...] | None:
    """Return the name of each example's group; an empty cell is refused."""
    if table.groups is None:
        return None
    table.check_filled(table.groups)
    groups = table.groups
    if not (groups.dtype.is_integer() or groups.dtype.is_float() or groups.dtype in GROUPABLE):
        raise table.problem(f"expected text or numbers, got {groups.dtype}.", column=groups.name)
    return tuple(groups.cast(polars.String))


def _check_probabilities(table: RawPredictions, values: numpy.ndarray) -> None:
    inside = (values >= 0) & (values <= 1 + SUM_TOLERANCE)  # written so that NaN is outside
    _refuse(
        table,
        values,
        ~inside,
        "expected a probability from 0 to 1",
        "are they logits? Then add --logits",
    )
    sums = values.sum(1)  # (N,)
    bad = numpy.abs(sums - 1) > SUM_TOLERANCE
    if bad.any():
        row, names = int(bad.argmax()), table.values.columns
        raise table.problem(
            f"expected probabilities that sum to 1, within {SUM_TOLERANCE}, got {sums[row]:.6g} as "
            f"the sum of the {len(names)} columns {names[0]!r} to {names[-1]!r}: is a class "
            "missing? For logits add --logits.",
            row,
        )


def _check_logits(table: RawPredictions, values: numpy.ndarray) -> None:
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


def _named_labels(table: RawPredictions) -> numpy.ndarray:
    """Return labels that are names of classes as their numbers, (N,)."""
    column = table.labels
    if not (column.dtype.is_integer() or column.dtype in GROUPABLE):
        raise table.problem(f"expected names of classes, got {column.dtype}.", column=column.name)
    text = column.cast(polars.String)
    numbers = text.replace_strict(
        list(table.classes), range(len(table.classes)), default=None, return_dtype=polars.Int64
    )
    if numbers.null_count():
        row = int(numbers.is_null().arg_true()[0])
        hint = did_you_mean(text[row], table.classes)
        raise table.problem(
            f"expected the name of a class, got {shown(text[row])}. {hint} Whole numbers are "
            "labels only where the classes have no names: columns that end in 0, 1, 2 and so on.",
            row,
            column.name,
        )
    return numbers.to_numpy().copy()


def _whole_labels(table: RawPredictions) -> numpy.ndarray:
    """Return labels that are numbers of classes, (N,)."""
    column, last = table.labels, len(table.classes) - 1
    expected = f"expected a whole number from 0 to {last}"
    if not (column.dtype.is_numeric() or column.dtype in (polars.String, polars.Categorical)):
        raise table.problem(f"{expected}, got {column.dtype}.", column=column.name)
    numbers = column.cast(polars.String).cast(polars.Float64, strict=False)
    bad = ~((numbers >= 0) & (numbers <= last) & (numbers == numbers.round())).fill_null(False)
    if bad.any():
        row = int(bad.arg_true()[0])
        came = column[row]
        remedy = _label_remedy(numbers[row], table)
        raise table.problem(f"{expected}, got {shown(came)}: {remedy}", row, column.name)
    return numbers.cast(polars.Int64).to_numpy().copy()


def _label_remedy(number: float | None, table: RawPredictions) -> str:
    if number is None:
        return "for names of classes as labels, the columns of the classes end in these names."
    if number == -1:
        return (
            "-1 marks an example of no known class, which is neither right nor wrong: leave such "
            "rows out."
        )
    if number == len(table.classes):
        return "classes are counted from 0."
    return "check the labels and the columns of the classes."
