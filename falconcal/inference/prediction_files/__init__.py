"""Predictions from files of other tools: CSV, Parquet, NPZ, NPY and JSON. Nothing is guessed.

Each format opens a file as a table (``table_formats``, ``array_formats``); the names of its columns
say which form it has (``file_forms``, ``own_files``); the labels are matched (``true_classes``) and
the numbers checked (``probability_checks``, ``form_records``).
"""

from collections.abc import Callable
from pathlib import Path

import polars

from falconcal.errors import UsageError, unknown_name_error
from falconcal.inference.prediction_files.array_formats import open_npy_table, open_npz_table
from falconcal.inference.prediction_files.file_forms import find_labels, find_layout
from falconcal.inference.prediction_files.form_records import make_record
from falconcal.inference.prediction_files.open_table import OpenTable
from falconcal.inference.prediction_files.own_files import (
    check_has_truth,
    is_run_scores,
    predict_layout,
    read_run_scores,
    written_by_predict,
)
from falconcal.inference.prediction_files.prediction_file import PredictionFile
from falconcal.inference.prediction_files.probability_checks import RawPredictions, group_names
from falconcal.inference.prediction_files.read_options import (
    FILE_FORMS,
    FileForm,
    Layout,
    ReadOptions,
)
from falconcal.inference.prediction_files.same_examples import same_examples
from falconcal.inference.prediction_files.table_formats import (
    open_csv_table,
    open_json_table,
    open_parquet_table,
)
from falconcal.inference.prediction_files.true_classes import (
    TrueClasses,
    check_as_many,
    read_truth,
)
from falconcal.io.atomic import as_path

__all__ = [
    "FILE_FORMS",
    "PREDICTION_FORMATS",
    "PredictionFile",
    "read_predictions",
    "same_examples",
]

PREDICTION_FORMATS: dict[str, Callable[..., OpenTable]] = {
    ".csv": open_csv_table,
    ".parquet": open_parquet_table,
    ".npz": open_npz_table,
    ".npy": open_npy_table,
    ".json": open_json_table,
}


def read_predictions(
    path: str | Path,
    *,
    labels: str | None = None,
    probabilities: str | None = None,
    logits: bool = False,
    groups: str | None = None,
    form: FileForm | None = None,
    positive: str | None = None,
    prediction: str | None = None,
    confidence: str | None = None,
    normalise: bool = False,
    header: bool = True,
    truth: str | Path | None = None,
    identifier: str | None = None,
    shift: str | None = None,
    level: int | None = None,
) -> PredictionFile:
    r"""Read predictions from a file, the form of which the names of its columns tell.

    The forms are one probability per class, the probability of one of two classes, and the top
    prediction with its confidence. The output of ``falconcal predict`` and the ``scores.parquet``
    of a run are read too. A file that fits two forms is refused.

    Args:
        path: A CSV, Parquet, NPZ, NPY or JSON file; the extension gives the format.
        labels: The column, or array, of the true classes; by default ``label``, or what other tools
            call it, such as ``y_true`` and ``target``.
        probabilities: The column of the probability, several with commas between them, or what
            the columns of the classes begin with, ``p_`` by default, ``logit_`` for logits; in NPZ
            files an array (N, C) or (N,), ``probabilities`` or ``logits`` by default.
        logits: Whether the numbers are logits; that is never guessed.
        groups: The column, or array, of each example's group.
        form: ``"classes"``, ``"positive"`` or ``"top"``, for a file that fits several forms.
        positive: The class that a single probability is of, ``1`` by default.
        prediction: The column of the top prediction, ``prediction`` by default.
        confidence: The column of its probability, ``confidence`` by default.
        normalise: Whether rows that sum to 1 within 0.1 are divided by their sum.
        header: Whether the first line of a CSV file names the columns; else they are 0, 1, ...
        truth: Another file, which has the labels.
        identifier: The column by which rows of the two files are matched; by default the first
            one if both begin with it, else rows are in the same order.
        shift: Of a run's scores, the shift to take; the clean examples by default.
        level: Of a run's scores, the level of the shift; all by default.

    Returns:
        The predictions, the names of classes and groups, and which form was found.

    Raises:
        UsageError: The file, a column or an array is not there, or several forms fit.
        UserError: A value is wrong; the message names its row and column.

    Example:
        >>> import pathlib, falconcal
        >>> table = "label,p_0,p_1\n0,0.9,0.1\n1,0.8,0.2\n"
        >>> _ = pathlib.Path("predictions.csv").write_text(table)
        >>> falconcal.accuracy(falconcal.read_predictions("predictions.csv").predictions)
        0.5
        >>> _ = pathlib.Path("two.csv").write_text("y_true,y_prob\n0,0.1\n1,0.8\n")
        >>> falconcal.read_predictions("two.csv").found
        "the probability of one of two classes in column 'y_prob'"
    """
    if form is not None and form not in FILE_FORMS:
        raise unknown_name_error("form", form, FILE_FORMS)
    beside = None if truth is None else as_path(truth)
    options = ReadOptions(
        labels, probabilities, logits, groups, form, positive, prediction, confidence, normalise,
        header, beside, identifier, shift, level,
    )  # fmt: skip
    table = _open(as_path(path), options)
    if is_run_scores(table.columns):
        return _run_file(table, options)
    return _prediction_file(table, options)


def _open(path: Path, options: ReadOptions) -> OpenTable:
    """Open a file by its extension."""
    if path.is_dir():
        raise UsageError(f"expected a file, got the folder {path}: name a file in it.")
    if not path.exists():
        raise UsageError(f"no such file: {path}. Check the path and the current folder.")
    if path.suffix.lower() not in PREDICTION_FORMATS:
        raise UsageError(
            f"expected a file that ends in {', '.join(PREDICTION_FORMATS)}, got {path.name!r}: "
            "convert it, or rename it if it is one of these."
        )
    return PREDICTION_FORMATS[path.suffix.lower()](path, header=options.header)


def _run_file(table: OpenTable, options: ReadOptions) -> PredictionFile:
    scores, groups, words = read_run_scores(table, options)
    last = max(int(scores.label.max()), int(scores.prediction.max()))
    classes = tuple(str(number) for number in range(last + 1))
    named = None if groups is None else tuple(groups.cast(polars.String))
    return PredictionFile(table.path, scores, classes, named, words)


def _prediction_file(table: OpenTable, options: ReadOptions) -> PredictionFile:
    """Read a file whose labels stand in it or beside it."""
    own = written_by_predict(table.columns)
    if own:
        check_has_truth(table, options)
    if options.groups is not None:
        table.check_there("--groups", options.groups)
    beside = None
    if options.truth is not None:
        beside = read_truth(table, _open(options.truth, options), options)
    column = find_labels(table, options) if beside is None else None
    layout = predict_layout(table, options) if own else _layout(table, column, beside, options)
    raw, labels = _read(table, layout, column, options)
    return _checked(raw, labels or beside, options)


def _layout(
    table: OpenTable, column: str | None, beside: TrueClasses | None, options: ReadOptions
) -> Layout:
    def seen() -> list[str]:
        if beside is not None:
            return beside.seen()
        file = table.read([str(column)])
        return TrueClasses(file.path, file.place, file.frame.to_series().drop_nulls()).seen()

    matched = beside.matched_by if beside is not None else None
    return find_layout(table, [column, options.groups, matched], seen, options)


def _read(
    table: OpenTable, layout: Layout, labels: str | None, options: ReadOptions
) -> tuple[RawPredictions, TrueClasses | None]:
    """Read the columns that matter, each once and all at once."""
    others = [name for name in (layout.prediction, labels, options.groups) if name is not None]
    file = table.read(list(dict.fromkeys([*layout.values, *others])))
    if len(file.frame) == 0:
        raise file.problem("expected at least one example, got a header and no rows.")
    raw = RawPredictions(
        path=file.path,
        place=file.place,
        layout=layout,
        values=file.frame.select(layout.values),
        predictions=None if layout.prediction is None else file.frame[layout.prediction],
        groups=None if options.groups is None else file.frame[options.groups],
    )
    return raw, None if labels is None else TrueClasses(file.path, file.place, file.frame[labels])


def _checked(
    raw: RawPredictions, labels: TrueClasses | None, options: ReadOptions
) -> PredictionFile:
    assert labels is not None  # they stand in the file or beside it
    check_as_many(labels, len(raw.values), raw.path)
    record, classes = make_record(raw, labels, options)
    found = f"{FILE_FORMS[raw.layout.form]} in {raw.layout.words}"
    words = f"{found}; {labels.words}" if labels.words else found
    return PredictionFile(raw.path, record, classes, group_names(raw), words)
