"""The true class of each example: a column of the same file, or of another one beside it."""

from dataclasses import dataclass, replace

import numpy
import polars

from falconcal.errors import UsageError, UserError, did_you_mean
from falconcal.inference.prediction_files.file_forms import LABEL_NAMES
from falconcal.inference.prediction_files.one_hot import (
    class_names,
    one_hot_columns,
    one_hot_labels,
)
from falconcal.inference.prediction_files.open_table import OpenTable
from falconcal.inference.prediction_files.read_options import ReadOptions
from falconcal.io.table_files import Rows, shown

NAMEABLE = (polars.String, polars.Categorical, polars.Enum, polars.Boolean, polars.Date)
NOT_LABELS = ("Usage",)  # in Kaggle's solution files: which rows are public
TRUTH_VALUES = {"false": "0", "true": "1"}


@dataclass(frozen=True, eq=False)
class TrueClasses(Rows):
    """The labels as they stand in a file, one per example, not yet checked."""

    column: polars.Series  # (N,)
    classes: tuple[str, ...] = ()  # all there are, if the file says so
    words: str = ""  # where they come from, if from another file
    matched_by: str | None = None  # the column of identifiers

    def texts(self) -> polars.Series:
        """Return the labels as text, whole numbers without a fraction, (N,)."""
        self.check_filled(self.column)
        return as_texts(self, self.column)

    def seen(self) -> list[str]:
        """Return the different labels, in the order of numbers or of letters."""
        return list(self.classes) or in_order(self.texts().unique().to_list())

    def class_numbers(self, classes: tuple[str, ...], *, named: bool) -> numpy.ndarray:
        """Return the number of each example's class, (N,)."""
        self.check_filled(self.column)
        return _named_numbers(self, classes) if named else _whole_numbers(self, classes)


def as_texts(rows: Rows, column: polars.Series) -> polars.Series:
    """Return names of classes as text: 1.0 as 1, and so in a column of text."""
    if not (column.dtype.is_numeric() or column.dtype in NAMEABLE):
        raise rows.problem(f"expected names of classes, got {column.dtype}.", column=column.name)
    if column.dtype == polars.Boolean:
        column = column.cast(polars.Int8)
    text = column.cast(polars.String)
    whole = text.cast(polars.Float64, strict=False)
    if not whole.null_count() and (whole.is_finite() & (whole == whole.round())).all():
        return whole.cast(polars.Int64).cast(polars.String)
    lower = text.str.to_lowercase()
    return lower.replace(TRUTH_VALUES) if lower.is_in(list(TRUTH_VALUES)).all() else text


def in_order(names: list[str]) -> list[str]:
    """Return names sorted, as numbers where all are."""
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=int) if whole else sorted(names)


def read_truth(table: OpenTable, truth: OpenTable, options: ReadOptions) -> TrueClasses:
    """Read the labels of a file beside the predictions, matched by identifier or by order."""
    identifier = _identifier(table, truth, options)
    beside = _beside(table, truth, identifier, options)
    if identifier is None:
        return replace(beside, words=f"{beside.words}, in the same order")
    places = _matched(table, truth, identifier)
    return TrueClasses(
        truth.path,
        lambda row: beside.place(int(places[row])),
        beside.column.gather(places),
        beside.classes,
        f"{beside.words}, matched by {identifier!r}",
        identifier,
    )


def _beside(
    table: OpenTable, truth: OpenTable, identifier: str | None, options: ReadOptions
) -> TrueClasses:
    """Return the labels in their own file's order: one column, or one of 0 and 1 per class."""
    columns = one_hot_columns(table, _may_be_labels(truth, identifier))
    if options.labels is None and columns:
        theirs = truth.read(columns)
        words = f"labels from the {len(columns)} columns of 0 and 1 of {truth.path.name}"
        column, classes = one_hot_labels(theirs, columns), tuple(class_names(columns))
        return TrueClasses(truth.path, theirs.place, column, classes, words)
    labels = _label_column(truth, identifier, options)
    theirs = truth.read([labels])
    words = f"labels from {truth.kind} {labels!r} of {truth.path.name}"
    return TrueClasses(truth.path, theirs.place, theirs.frame[labels], words=words)


def _may_be_labels(truth: OpenTable, identifier: str | None) -> list[str]:
    return [name for name in truth.columns if name != identifier and name not in NOT_LABELS]


def _identifier(table: OpenTable, truth: OpenTable, options: ReadOptions) -> str | None:
    """Return the column that matches rows: as told, or the first one that both begin with."""
    if options.identifier is not None:
        table.check_there("--id", options.identifier)
        truth.check_there("--id", options.identifier)
        return options.identifier
    begin = [one.columns[0] for one in (table, truth) if len(one.columns) > 1]
    same = len(begin) == 2 and begin[0] == begin[1] and table.kind == truth.kind == "column"
    return begin[0] if same and options.header else None


def _label_column(truth: OpenTable, identifier: str | None, options: ReadOptions) -> str:
    if options.labels is not None:
        truth.check_there("--labels", options.labels)
        return options.labels
    others = _may_be_labels(truth, identifier)
    usual = [name for name in LABEL_NAMES if name in others]
    if len(usual) == 1:
        return usual[0]
    if len(others) != 1:
        raise UsageError(
            f"{truth.path}: expected one column of true classes. {truth.listed()} Name it with "
            "--labels."
        )
    return others[0]


def _matched(table: OpenTable, truth: OpenTable, identifier: str) -> numpy.ndarray:
    """Return for each prediction the row of its label, (N,)."""
    ours, theirs = (one.read([identifier]) for one in (table, truth))
    keys = []
    for file in (ours, theirs):
        column = file.frame[identifier]
        file.check_filled(column)
        keys.append(as_texts(file, column))
        if keys[-1].is_duplicated().any():
            row = int(keys[-1].is_duplicated().arg_true()[1])
            raise file.problem(
                f"expected each identifier once, got {shown(keys[-1][row])} again.", row, identifier
            )
    lookup = dict(zip(keys[1].to_list(), range(len(keys[1])), strict=True))
    places = [lookup.get(key, -1) for key in keys[0].to_list()]
    if -1 in places:
        row = places.index(-1)
        raise ours.problem(
            f"expected an identifier of {truth.path}, got {shown(keys[0][row])}, which it lacks.",
            row,
            identifier,
        )
    return numpy.array(places, numpy.int64)


def _named_numbers(labels: TrueClasses, classes: tuple[str, ...]) -> numpy.ndarray:
    """Return labels that are names of classes as their numbers, (N,)."""
    column = labels.column
    if not (column.dtype.is_integer() or column.dtype in NAMEABLE):
        raise labels.problem(f"expected names of classes, got {column.dtype}.", column=column.name)
    text = column.cast(polars.String)
    numbers = text.replace_strict(
        list(classes), range(len(classes)), default=None, return_dtype=polars.Int64
    )
    if numbers.null_count():
        row = int(numbers.is_null().arg_true()[0])
        hint = did_you_mean(text[row], classes)
        raise labels.problem(
            f"expected the name of a class, got {shown(text[row])}. {hint} Whole numbers are "
            "labels only where the classes have no names: columns that end in 0, 1, 2 and so on.",
            row,
            column.name,
        )
    return numbers.to_numpy().copy()


def _whole_numbers(labels: TrueClasses, classes: tuple[str, ...]) -> numpy.ndarray:
    """Return labels that are numbers of classes, (N,)."""
    column, last = labels.column, len(classes) - 1
    expected = f"expected a whole number from 0 to {last}"
    if not (column.dtype.is_numeric() or column.dtype in (polars.String, polars.Categorical)):
        raise labels.problem(f"{expected}, got {column.dtype}.", column=column.name)
    numbers = column.cast(polars.String).cast(polars.Float64, strict=False)
    bad = ~((numbers >= 0) & (numbers <= last) & (numbers == numbers.round())).fill_null(False)
    if bad.any():
        row = int(bad.arg_true()[0])
        remedy = _remedy(numbers[row], len(classes))
        raise labels.problem(f"{expected}, got {shown(column[row])}: {remedy}", row, column.name)
    return numbers.cast(polars.Int64).to_numpy().copy()


def _remedy(number: float | None, classes: int) -> str:
    if number is None:
        return "for names of classes as labels, the columns of the classes end in these names."
    if number == -1:
        return (
            "-1 marks an example of no known class, which is neither right nor wrong: leave such "
            "rows out."
        )
    if number == classes:
        return "classes are counted from 0."
    return "check the labels and the columns of the classes."


def check_as_many(labels: TrueClasses, examples: int, predictions: object) -> None:
    """Refuse labels of more or fewer examples than were predicted."""
    if len(labels.column) != examples:
        raise UserError(
            f"{labels.path}: expected a label for each of the {examples:,} predictions of "
            f"{predictions}, got {len(labels.column):,}: name a column that both have with --id."
        )
