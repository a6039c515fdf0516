"""Run a study: check it, do its runs, collect their rows."""

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars

from falconcal.core import distributed
from falconcal.data import Dataset
from falconcal.errors import UserError
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.evaluation.under_shift import CLEAN
from falconcal.io.output_folder import DEFAULT_VARIANT, RUN_FILES, RunKey, advice
from falconcal.studies.building import check_shifts, make_study_model
from falconcal.studies.events import Event, EventHandler
from falconcal.studies.executors.local_workers import ExecutorFactory, in_this_process
from falconcal.studies.run import StudyContext, run_settings
from falconcal.studies.run_files import is_whole, read_table, write_table
from falconcal.studies.schedule import ATTEMPTS, Needs, Schedule, dependencies, runs_of
from falconcal.studies.shift_images import write_pictures
from falconcal.studies.store import Store
from falconcal.studies.study import Study, with_tests


def do_runs(
    study: Study,
    directory: Path,
    on_event: EventHandler,
    methods: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
    make_executor: ExecutorFactory | None = None,
    measure_later: bool = False,
) -> dict[RunKey, str]:
    """Do the runs that are not complete, write the rows of all that are, return why runs failed.

    Where ``falconcal measure`` has added shifts to the folder, new runs are measured under them
    too. With ``measure_later`` new runs are scored on clean test data alone.
    """
    store = Store(directory)
    study = with_tests(study, *store.measured_later())
    runs = runs_of(study, methods, variants)
    context = StudyContext(study, store, measure_later)
    settings_of = partial(_settings_of, study)
    store.check(study.resolved(), settings_of)  # before anything is written; again under the lock
    _check_other_runs(store, runs)
    check_runs(context, {run.variant for run in runs})
    with store.opened(study.resolved(), settings_of):
        failed = _do(context, runs, on_event, make_executor or in_this_process())
        if distributed.is_first_process():
            store.tidy()
            collect_rows(study, store)
            write_study_pictures(study, directory, context.dataset)
    return failed


def _settings_of(study: Study, run: RunKey) -> dict[str, Any] | None:
    """Return the settings that a run would have in the study; None if there is no such run."""
    known = run.method in study.methods and run.variant in (DEFAULT_VARIANT, *study.variants)
    return run_settings(study, run) if known else None


def _check_other_runs(store: Store, runs: list[RunKey]) -> None:
    """Refuse a folder with a damaged run that this command would not repeat."""
    own = {run.folder(store.directory) for run in runs}
    for folder in sorted((store.directory / "runs").glob("*/*/seed-*")):
        files = [folder / name for name in RUN_FILES]
        for file in files if folder not in own else ():
            if file.is_file() and not is_whole(file):
                raise UserError(f"cannot read {file}, it looks damaged: {advice(file)}.")


def check_runs(context: StudyContext, variants: Iterable[str]) -> None:
    """Refuse, before training, data, networks and shifts that do not fit together."""
    check_shifts(context.study, context.dataset)
    for name in variants:
        make_study_model(context.study.variant(name), context.dataset)


def _do(
    context: StudyContext,
    runs: list[RunKey],
    on_event: EventHandler,
    make_executor: ExecutorFactory,
) -> dict[RunKey, str]:
    """Do the runs that are not complete, each after those it needs; return why some failed."""
    # only the first process looks: it may write while others read
    complete = distributed.broadcast_from_first([context.store.complete(run) for run in runs])
    left = [run for run, there in zip(runs, complete, strict=True) if not there]
    needs = dependencies(context, left)
    _announce(context.store, needs, runs, on_event)
    schedule = Schedule(needs)
    with make_executor(context, RunTracker(schedule, context.store, on_event)) as executor:
        while schedule.waiting or schedule.busy:
            following = schedule.next() if executor.has_room() else None
            if following is None:
                executor.wait()
            else:
                schedule.start(following)
                executor.start(following)
    return schedule.failed


def _announce(store: Store, needs: Needs, runs: list[RunKey], on_event: EventHandler) -> None:
    """Report which runs are to be done, with the reason of one that is repeated."""
    for run in dict.fromkeys([*needs, *runs]):
        on_event(Event(run, "planned" if run in needs else "complete"))
        if run in needs and (file := store.damaged(run)) is not None:
            on_event(Event(run, "note", f"{file.name} is damaged, so the run is repeated"))


class RunTracker:
    """Handles events: updates the schedule, writes failures to files, passes events on."""

    def __init__(self, schedule: Schedule, store: Store, on_event: EventHandler) -> None:
        self.schedule, self.store, self.on_event = schedule, store, on_event

    def __call__(self, event: Event) -> None:
        if event.kind == "lost" and not self.schedule.lose(event.run):
            event = replace(event, kind="failed", text=f"{event.text}, {ATTEMPTS} times")
        if event.kind == "failed":
            self._record_failure(event)
            return
        if event.kind == "done":
            self.schedule.end(event.run)
            self.store.drop_failure(event.run)
        self.on_event(event)

    def _record_failure(self, event: Event) -> None:
        """Write down and pass on that a run failed, and with it those that build on it."""
        for run, reason in self.schedule.fail(event.run, event.text).items():
            self.store.keep_failure(run, f"{reason}\n\n{event.trace if run == event.run else ''}")
            self.on_event(replace(event, run=run, text=reason))


def write_study_pictures(study: Study, directory: Path, dataset: Dataset) -> None:
    """Write what the shifts look like, where the data are images."""
    if len(dataset.test.shape) == 3:  # sequences of pixels are images too
        write_pictures(directory, dataset.test, study.all_shifts(), study.all_outliers())


def collect_rows(study: Study, store: Store) -> None:
    """Write rows.parquet from the scores of all complete runs, under what the study tests."""
    tested = polars.col("shift").cast(polars.String).is_in([CLEAN, *study.tested])
    tables = []
    for run in store.runs():
        scores = read_table(run.folder(store.directory) / "scores.parquet")
        rows = scores_to_rows(scores.filter(tested))
        key = {"study": study.name, **dataclasses.asdict(run)}
        tables.append(
            rows.select(
                *(polars.lit(value).alias(name) for name, value in key.items()), *rows.columns
            )
        )
    if tables:
        write_table(store.directory / "rows.parquet", polars.concat(tables))
