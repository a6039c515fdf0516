"""Measure finished runs under further shifts, all of them in one pass over each shifted batch.

Each shift is stored when all runs are measured under it, in files beside the runs; at the end the
files become part of the runs' scores. A command that is interrupted loses one shift at most.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars
from torch import nn

from falconcal.errors import UsageError, UserError
from falconcal.evaluation.under_shift import score_together
from falconcal.io.output_folder import CLEAN, RunKey
from falconcal.shifts import AnyShift, Outliers
from falconcal.studies.building import check_tests
from falconcal.studies.measurement_request import (
    Measurement,
    check_not_fitted_on,
    requested_runs,
    requested_study,
    requested_tests,
)
from falconcal.studies.run import StudyContext
from falconcal.studies.run_files import is_whole, read_table, write_table
from falconcal.studies.run_models import RunModels
from falconcal.studies.runner import collect_rows, write_study_pictures
from falconcal.studies.store import Store
from falconcal.studies.study import Study, with_tests


@dataclass(frozen=True)
class MeasurementProgress:
    """How far a measurement has come."""

    name: str  # of the shift or the outliers
    level: int
    runs: int  # that are measured at once
    done: float  # levels
    levels: int  # of all shifts together


OnProgress = Callable[[MeasurementProgress], None]


@dataclass(frozen=True)
class MeasurementOutcome:
    """What is left to do: notes to show, and whether all runs have what the study tests."""

    notes: list[str]
    complete: bool


def measure_runs(request: Measurement, on_progress: OnProgress) -> MeasurementOutcome:
    """Measure finished runs, add the scores to theirs, and write rows.parquet."""
    store = Store(request.directory)
    runs = requested_runs(store, request)
    values = store.settings()
    before = requested_study(values, request)
    shifts, outliers = requested_tests(before, request)
    names = _names(shifts), _names(outliers)
    check_not_fitted_on(store, before, runs, (*names[0], *names[1]))
    context = StudyContext(with_tests(before, *names), store)
    with store.opened(values):
        left = _left(store, before, runs, (*names[0], *names[1]))
        _measure(context, shifts, outliers, left, on_progress)
        return _conclude(context, before, *names)


def _names(tests: Iterable[AnyShift | Outliers]) -> tuple[str, ...]:
    return tuple(test.name for test in tests)


Left = dict[str, list[RunKey]]  # the runs that have no scores yet, by shift or outliers


def _left(store: Store, study: Study, runs: list[RunKey], names: tuple[str, ...]) -> Left:
    measured = {run: measured_names(store, run) for run in runs}
    left = {
        name: [
            run
            for run in runs
            if name not in measured[run] and not is_whole(store.measured_file(run, name))
        ]
        for name in names
    }
    if all(name in study.tested and name in measured[run] for name in names for run in runs):
        raise UsageError(
            f"nothing is left to measure in {store.directory}: its runs were tested under "
            f"{', '.join(names)} already. Name further shifts with --shifts; falconcal list shifts "
            "shows them."
        )
    return {name: lacking for name, lacking in left.items() if lacking}


def measured_names(store: Store, run: RunKey) -> set[str]:
    """Return the names that a run's scores hold: clean, shifts, outliers."""
    scores = read_table(run.folder(store.directory) / "scores.parquet", ["shift"])
    return set(scores["shift"].cast(polars.String).unique())


def _measure(
    context: StudyContext,
    shifts: list[AnyShift],
    outliers: list[Outliers],
    left: Left,
    on_progress: OnProgress,
) -> None:
    """Score the runs under one shift after another, and store each."""
    shifts = [shift for shift in shifts if shift.name in left]
    outliers = [outside for outside in outliers if outside.name in left]
    check_tests(context.study, context.dataset, shifts, outliers)
    _check_same_examples(context, {run for lacking in left.values() for run in lacking})
    models = RunModels(context)
    meter = _Meter([*shifts, *outliers], len(context.dataset.test), on_progress)
    pairs: list[tuple[list[AnyShift], list[Outliers]]] = [
        *(([shift], []) for shift in shifts),
        *(([], [outside]) for outside in outliers),
    ]
    for pair in pairs:
        (name,) = _names([*pair[0], *pair[1]])
        for run, scores in _scores(context, pair, models.of_all(left[name]), meter).items():
            write_table(context.store.measured_file(run, name), scores)


def _scores(
    context: StudyContext,
    test: tuple[list[AnyShift], list[Outliers]],
    models: Mapping[RunKey, nn.Module],
    meter: "_Meter",
) -> dict[RunKey, polars.DataFrame]:
    meter.begin(*test[0], *test[1], runs=len(models))
    return score_together(
        models,
        context.dataset.test,
        *test,
        single_process=True,
        clean=False,
        on_batch=meter.on_batch,
    )


def _level_count(test: AnyShift | Outliers) -> int:
    return 1 if isinstance(test, Outliers) else len(test.levels) - 1


class _Meter:
    """Counts levels, and reports how far the measurement has come after each batch."""

    def __init__(
        self, tests: list[AnyShift | Outliers], examples: int, on_progress: OnProgress
    ) -> None:
        self.levels = sum(map(_level_count, tests))
        self.examples, self.on_progress = max(examples, 1), on_progress
        self.before = self.following = self.runs = 0  # levels of the shifts before and after

    def begin(self, test: AnyShift | Outliers, *, runs: int) -> None:
        self.before, self.runs = self.following, runs
        self.following += _level_count(test)

    def on_batch(self, name: str, level: int, examples: int) -> None:
        within = min(examples / self.examples, 1.0)  # stored data may have more examples
        done = self.before + level - 1 + within
        self.on_progress(MeasurementProgress(name, level, self.runs, done, self.levels))


def _check_same_examples(context: StudyContext, runs: Iterable[RunKey]) -> None:
    """Refuse test data that are not those of the runs' own scores."""
    labels = context.dataset.test.labels
    for run in sorted(runs):
        file = run.folder(context.store.directory) / "scores.parquet"
        clean = read_table(file, ["shift", "label"]).filter(
            polars.col("shift").cast(polars.String) == CLEAN
        )
        if clean["label"].to_list() != labels.tolist():
            raise UserError(
                f"expected the {len(clean)} test examples that {run} was measured on, got "
                f"{len(labels)} examples with other labels: has the data changed since?"
            )


def _conclude(
    context: StudyContext, before: Study, shifts: tuple[str, ...], outliers: tuple[str, ...]
) -> MeasurementOutcome:
    """Add what was stored to the runs, write rows, and list in study.json what all runs have."""
    store = context.store
    for run in store.runs():
        _add_stored(store, run, (*shifts, *outliers))
    measured = {run: measured_names(store, run) for run in store.runs()}
    new = [
        [name for name in names if name not in before.tested and _have(measured, name)]
        for names in (shifts, outliers)
    ]
    study = with_tests(before, *new)
    collect_rows(study, store)
    write_study_pictures(study, store.directory, context.dataset)
    store.tidy()
    store.add_measured(*new)  # last: only now the command has nothing left to do
    notes = [
        _lacking_note(store, name, option)
        for names, option in ((shifts, "--shifts"), (outliers, "--outliers"))
        for name in names
        if not _have(measured, name)
    ]
    complete = all(_have(measured, name) for name in study.tested)
    return MeasurementOutcome(notes, complete)


def _have(measured: Mapping[RunKey, set[str]], name: str) -> bool:
    return all(name in names for names in measured.values())


def _add_stored(store: Store, run: RunKey, names: Iterable[str]) -> None:
    """Add what was measured to the scores of a run, then remove its files."""
    files = {name: store.measured_file(run, name) for name in names}
    files = {name: file for name, file in files.items() if is_whole(file)}
    known = measured_names(store, run) if files else set()
    new = [read_table(file) for name, file in files.items() if name not in known]
    if new:
        scores = run.folder(store.directory) / "scores.parquet"
        write_table(scores, polars.concat([read_table(scores), *new]))
    for file in files.values():
        file.unlink()


def _lacking_note(store: Store, name: str, option: str) -> str:
    return (
        f"The report shows {name} once all runs are measured under it: falconcal measure "
        f"{store.directory} {option} {name}"
    )
