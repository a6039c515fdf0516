"""Files that falconcal itself wrote: the output of ``falconcal predict``, and a run's scores."""

from collections.abc import Sequence

import polars
import torch

from falconcal.errors import UsageError
from falconcal.inference.prediction_files.file_forms import CLASS_PREFIXES
from falconcal.inference.prediction_files.open_table import OpenTable
from falconcal.inference.prediction_files.read_options import Layout, ReadOptions
from falconcal.io.output_folder import CLEAN
from falconcal.io.table_files import TableFile
from falconcal.metrics.predictions import Scores

PREDICT_COLUMNS = ("label", "confidence", "entropy")  # after "file" or "row"
RUN_COLUMNS = ("shift", "level", "example", "label", "prediction", "confidence", "correct", "nll",
               "entropy", "brier")  # fmt: skip


def written_by_predict(columns: Sequence[str]) -> bool:
    """Return whether a file has the columns of ``falconcal predict``, in their order."""
    return columns[:1] in (("row",), ("file",)) and tuple(columns[1:4]) == PREDICT_COLUMNS


def predict_layout(table: OpenTable, options: ReadOptions) -> Layout:
    """Return the layout of a file of ``falconcal predict``, whose labels are predictions."""
    prefix = CLASS_PREFIXES[0]
    values = tuple(name for name in table.columns if name.startswith(prefix))
    if len(values) < 2 or options.form == "top":
        words = "columns 'label' and 'confidence' of falconcal predict"
        return Layout("top", words, ("confidence",), prediction="label")
    words = f"columns {values[0]!r} to {values[-1]!r} of falconcal predict"
    classes = tuple(name.removeprefix(prefix) for name in values)
    return Layout("classes", words, values, classes, named=True)


def check_has_truth(table: OpenTable, options: ReadOptions) -> None:
    """Refuse a file of ``falconcal predict`` without true classes: its labels are predictions."""
    if options.truth is None and options.labels is None:
        raise UsageError(
            f"{table.path}: falconcal predict wrote it, so its column 'label' is the prediction: "
            "give the true classes with --truth FILE, or name a column that you have added with "
            "--labels."
        )


def is_run_scores(columns: Sequence[str]) -> bool:
    """Return whether a file has the columns of a run's ``scores.parquet``."""
    return set(RUN_COLUMNS) <= set(columns)


def read_run_scores(
    table: OpenTable, options: ReadOptions
) -> tuple[Scores, polars.Series | None, str]:
    """Return scores of one shift of a run, groups if asked for, and words on what was taken."""
    groups = [] if options.groups is None else [options.groups]
    file = table.read(list(dict.fromkeys([*RUN_COLUMNS, *groups])))
    _check_types(file)
    frame, words = _chosen_rows(table, file.frame, options)
    if frame["label"].min() == -1:
        raise UsageError(
            f"{table.path}: {words} are outliers, which have no true class: choose another --shift."
        )
    chosen = frame[options.groups] if options.groups is not None else None
    return _scores(frame), chosen, f"scores of a run, {words}"


def _chosen_rows(
    table: OpenTable, frame: polars.DataFrame, options: ReadOptions
) -> tuple[polars.DataFrame, str]:
    shift = CLEAN if options.shift is None else options.shift
    names = frame["shift"].cast(polars.String).unique().sort().to_list()
    if shift not in names:
        raise UsageError(
            f"{table.path}: there is no shift {shift!r}. It has {', '.join(names)}: choose one "
            "with --shift."
        )
    rows = frame.filter(polars.col("shift").cast(polars.String) == shift)
    if options.level is None:
        return rows, "the clean examples" if shift == CLEAN else f"all levels of {shift}"
    levels = rows["level"].unique().sort().to_list()
    if options.level not in levels:
        raise UsageError(
            f"{table.path}: {shift} has no level {options.level}, only "
            f"{', '.join(map(str, levels))}: choose one with --level."
        )
    return rows.filter(polars.col("level") == options.level), f"{shift} at level {options.level}"


def _check_types(file: TableFile) -> None:
    """Refuse a file that has the names of a run's scores and other content."""
    types = file.frame.schema
    whole = all(types[name].is_integer() for name in ("level", "label", "prediction"))
    real = all(types[name].is_float() for name in ("confidence", "nll", "entropy", "brier"))
    if not (whole and real and types["correct"] == polars.Boolean and len(file.frame)):
        raise file.problem("expected the scores of a run, as falconcal run writes them.")
    for name in ("shift", "level", "label", "prediction", "confidence", "correct", "entropy"):
        file.check_filled(file.frame[name])


def _scores(frame: polars.DataFrame) -> Scores:
    fields = ("label", "confidence", "correct", "prediction", "nll", "entropy", "brier")
    columns = {name: torch.from_numpy(frame[name].to_numpy().copy()) for name in fields}
    whole = {name: columns[name].long() for name in ("label", "prediction")}
    return Scores(**{**columns, **whole})
