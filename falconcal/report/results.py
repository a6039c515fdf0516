"""What a study stored in its output folder, read and checked."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars

from falconcal.errors import UsageError, UserError
from falconcal.evaluation.under_shift import CLEAN
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey, advice, example_file
from falconcal.io.parsing import parse_json
from falconcal.io.report_roles import ReportRoles, read_roles

ROW_COLUMNS = {
    "variant": polars.String,
    "method": polars.String,
    "seed": polars.Int64,
    "shift": polars.String,
    "level": polars.Int64,
    "metric": polars.String,
    "value": polars.Float64,
}
SCORE_COLUMNS = {
    "shift": polars.String,
    "level": polars.Int64,
    "example": polars.Int64,
    "label": polars.Int64,
    "prediction": polars.Int64,
    "confidence": polars.Float64,
    "correct": polars.Boolean,
    "nll": polars.Float64,
    "entropy": polars.Float64,
    "brier": polars.Float64,
}
INPUT_WORDS = {"image": "images", "text": "texts", "sequence": "sequences", "signal": "rows"}
HISTORY_COLUMNS = {"epoch": polars.Int64, "term": polars.String, "value": polars.Float64}


@dataclass(frozen=True, eq=False)
class StoredRun:
    """One training run: its settings, what it recorded, and where its scores are."""

    key: RunKey
    folder: Path
    settings: dict[str, Any]
    record: dict[str, Any]
    history: polars.DataFrame

    @property
    def series(self) -> str:
        return self.key.series

    @property
    def scores_file(self) -> Path:
        return self.folder / "scores.parquet"

    def recorded_names(self, entry: str) -> list[str]:
        """Return a list of names that the run recorded; older runs have none."""
        names = self.record.get(entry)
        return [str(name) for name in names] if isinstance(names, list) else []


@dataclass(frozen=True, eq=False)
class Results:
    """A stored study: its settings, its rows (with the series of each) and its runs."""

    directory: Path
    study: dict[str, Any]
    rows: polars.DataFrame
    runs: tuple[StoredRun, ...]
    notes: tuple[str, ...] = ()  # on what a reader must know before any figure

    @property
    def title(self) -> str:
        return str(self.study.get("title") or self.study["name"])

    @property
    def selection_shifts(self) -> tuple[str, ...]:
        """Shifts that served to choose settings; they never enter a headline figure."""
        return tuple(self.study.get("selection_shifts") or ())

    @property
    def tested_shifts(self) -> tuple[str, ...]:
        chosen_on = self.selection_shifts
        return tuple(shift for shift in self.study["shifts"] if shift not in chosen_on)

    @property
    def shifts(self) -> tuple[str, ...]:
        return self.tested_shifts + self.selection_shifts

    @property
    def outliers(self) -> tuple[str, ...]:
        """Sets of examples of no known class."""
        return tuple(self.study.get("outliers") or ())

    @cached_property
    def inputs(self) -> str:
        """What was tested, in a word: images, texts, sequences or rows; else examples."""
        recorded = {run.record.get("inputs") for run in self.runs} - {None}
        if not recorded and self.examples:
            recorded = {"image"}  # older runs do not say, but only images have strips
        kind = str(recorded.pop()) if len(recorded) == 1 else ""
        return INPUT_WORDS.get(kind, "examples")

    @cached_property
    def roles(self) -> ReportRoles:
        """Which method is plain, which is the reference, and what stands beside the paper's."""
        return read_roles(self.study.get("report") or {})

    def series_of(self, method: str) -> str | None:
        """Return the first series of a method; nothing where the study lacks it."""
        return next((run.series for run in self.runs if run.key.method == method), None)

    @cached_property
    def series(self) -> tuple[str, ...]:
        """Labels in the order of the runs, which is that of the study's methods."""
        return tuple(dict.fromkeys(run.series for run in self.runs))

    @cached_property
    def fitted_on(self) -> dict[str, tuple[str, ...]]:
        """By series, the families of shifts that it was fitted on, where there are any."""
        return self._recorded("fitted_on")

    @cached_property
    def kin(self) -> dict[str, tuple[str, ...]]:
        """By series, the shifts that are kin of what it was fitted on, where there are any."""
        found = self._recorded("kin")
        shown = {
            series: tuple(shift for shift in self.shifts if shift in names)
            for series, names in found.items()
        }
        return {series: names for series, names in shown.items() if names}

    def _recorded(self, entry: str) -> dict[str, tuple[str, ...]]:
        """Return by series what its runs recorded, those of all seeds together."""
        names: dict[str, list[str]] = {}
        for run in self.runs:
            names.setdefault(run.series, []).extend(run.recorded_names(entry))
        return {series: tuple(dict.fromkeys(found)) for series, found in names.items() if found}

    @property
    def examples(self) -> dict[str, Path]:
        """Strips of example images by shift; data that is no image has none."""
        return self._pictures(self.shifts)

    @property
    def outlier_examples(self) -> dict[str, Path]:
        """Example images of the sets of outliers."""
        return self._pictures(self.outliers)

    def _pictures(self, names: tuple[str, ...]) -> dict[str, Path]:
        files = {name: example_file(self.directory, name) for name in names}
        return {name: file for name, file in files.items() if file.is_file()}


def load_results(directory: Path) -> Results:
    """Read and check an output folder, except for the scores, which are read when needed.

    Args:
        directory: The output folder of ``falconcal run``.

    Returns:
        The study's settings, its rows and its runs.

    Raises:
        UserError: If a file is missing or damaged, or runs lack shifts; the message names it.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import load_results
        >>> load_results(Path("nowhere"))
        Traceback (most recent call last):
        falconcal.errors.UserError: expected an output folder of falconcal run, got nowhere: ...
    """
    if not (directory / "study.json").is_file():
        raise UserError(
            f"expected an output folder of falconcal run, got {directory}: there is no study.json "
            "in it."
        )
    study = _read_study(directory / "study.json")
    rows = _read_rows(directory / "rows.parquet")
    keys = rows.select("variant", "method", "seed").unique(maintain_order=True).rows()
    methods = _order(study.get("methods") or ())
    variants = _order((DEFAULT_VARIANT, *(study.get("variants") or ())))
    # stable: what the study does not name comes last, as in the rows
    last = len(methods), len(variants)
    keys.sort(key=lambda key: (methods.get(key[1], last[0]), variants.get(key[0], last[1])))
    runs = tuple(_read_run(directory, RunKey(*key)) for key in keys)
    results = Results(directory, study, rows, runs, study_notes([study]))
    _check_shifts(results)
    return results


def study_notes(studies: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return what studies say that a reader must know, each note once."""
    notes = (" ".join(str(study.get("note") or "").split()) for study in studies)
    return tuple(dict.fromkeys(note for note in notes if note))


def _order(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def open_scores(run: StoredRun) -> polars.LazyFrame:
    """Return a run's scores, checked but not yet read: there may be millions."""
    with explaining_read_errors(run.scores_file):
        scores = polars.scan_parquet(run.scores_file, glob=False)
        schema = scores.collect_schema()
    check_columns(schema, SCORE_COLUMNS, run.scores_file)
    return scores


def class_count(results: Results) -> int:
    """Return how many classes there are, from the highest that is true or predicted."""
    run = results.runs[0]
    with explaining_read_errors(run.scores_file):
        highest = open_scores(run).select(polars.max_horizontal("label", "prediction").max())
        return int(highest.collect().item()) + 1


@contextmanager
def explaining_read_errors(file: Path) -> Iterator[None]:
    """Turn any failure to read a file into an error that names it and says what to do."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"expected the file {file}, found none: {advice(file)}.") from None
    except (OSError, ValueError, RecursionError, polars.exceptions.PolarsError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(
            f"cannot read {file}, it looks damaged ({reason}): {advice(file)}."
        ) from error


def check_columns(
    found: polars.Schema, expected: dict[str, type[polars.DataType]], file: Path
) -> None:
    """Refuse a table that lacks a column, or holds text where numbers belong."""
    for name, kind in expected.items():
        if name not in found:
            raise UserError(
                f"expected a column {name!r} in {file}, got {', '.join(found)}: {advice(file)}."
            )
        if found[name].is_numeric() != kind().is_numeric():
            raise UserError(
                f"expected column {name!r} of {file} to be {kind.__name__}, got {found[name]}: "
                f"{advice(file)}."
            )


def _read_study(file: Path) -> dict[str, Any]:
    study = _read_mapping(file)
    for name, kind in (("name", str), ("shifts", list)):
        if not isinstance(study.get(name), kind) or not study[name]:
            raise UserError(
                f"expected {name!r} in {file} to be a {kind.__name__} that is not empty, got "
                f"{study.get(name)!r}: {advice(file)}."
            )
    try:
        read_roles(study.get("report") or {})
    except UsageError as error:
        raise UserError(f"{file}: {error}") from None
    return study


def _read_mapping(file: Path) -> dict[str, Any]:
    with explaining_read_errors(file):
        content = parse_json(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise UserError(
            f"expected a JSON object in {file}, got {type(content).__name__}: {advice(file)}."
        )
    return content


def _read_table(file: Path, columns: dict[str, type[polars.DataType]]) -> polars.DataFrame:
    with explaining_read_errors(file):
        table = polars.read_parquet(file, glob=False)
    check_columns(table.schema, columns, file)
    return table.with_columns(polars.col(name).cast(kind) for name, kind in columns.items())


def _read_rows(file: Path) -> polars.DataFrame:
    rows = _read_table(file, ROW_COLUMNS)
    if rows.is_empty():
        raise UserError(f"expected results in {file}, got no rows: run the study first.")
    label = (
        polars.when(polars.col("variant") == DEFAULT_VARIANT)
        .then(polars.col("method"))
        .otherwise(polars.format("{} ({})", "method", "variant"))
    )
    return rows.with_columns(label.alias("series"))


def _read_run(directory: Path, key: RunKey) -> StoredRun:
    folder = key.folder(directory)
    if not folder.is_dir():
        raise UserError(
            f"expected the run {folder}, because rows.parquet has results of it, found none: "
            "run the study again."
        )
    settings = _read_mapping(folder / "settings.json").get("settings", {})
    record = _read_mapping(folder / "run.json")
    history = _read_table(folder / "history.parquet", HISTORY_COLUMNS)
    return StoredRun(key, folder, settings, record, history)


def _check_shifts(results: Results) -> None:
    """Refuse a run that lacks a shift: its mean would be over other shifts than those of others."""
    groups = results.rows.group_by("variant", "method", "seed").agg("shift")
    found = {RunKey(*key): set(shifts) for *key, shifts in groups.rows()}
    for run in results.runs:
        missing = {CLEAN, *results.shifts, *results.outliers} - found[run.key]
        if missing:
            raise UserError(
                f"expected rows of {', '.join(sorted(missing))} for {run.key}, "
                f"in {results.directory / 'rows.parquet'}, found none: run the study again, or "
                f"measure what is missing with falconcal measure {results.directory}."
            )
