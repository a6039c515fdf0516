"""The runner: a study becomes runs, runs become rows."""

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars

from falconcal import processes
from falconcal.data import Dataset
from falconcal.errors import UserError
from falconcal.evaluation import rows_of
from falconcal.layout import PLAIN, RUN_FILES, RunKey, advice
from falconcal.studies.crew import MakeCrew, in_this_process
from falconcal.studies.events import Event, Hear
from falconcal.studies.making import model_of, try_shifts
from falconcal.studies.pictures import write_pictures
from falconcal.studies.run import Workplace, run_settings
from falconcal.studies.schedule import ATTEMPTS, Schedule, needs_of, runs_of
from falconcal.studies.store import Store, read_table, whole, write_table
from falconcal.studies.study import Study


def run_study(
    study: Study,
    directory: Path,
    hear: Hear,
    methods: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
    make_crew: MakeCrew | None = None,
) -> dict[RunKey, str]:
    """Run what is not complete yet, write the rows of all that is, and return why runs failed."""
    runs = runs_of(study, methods, variants)
    place = Workplace(study, Store(directory))
    store, settings_of = place.store, partial(_settings_of, study)
    store.check(study.resolved(), settings_of)  # before anything is written, and again when held
    _check_others(store, runs)
    check(place, {run.variant for run in runs})
    with store.opened(study.resolved(), settings_of):
        failed = _do(place, runs, hear, make_crew or in_this_process())
        if processes.first():
            store.tidy()
            gather(study, store)
            _write_pictures(study, directory, place.dataset)
    return failed


def _settings_of(study: Study, run: RunKey) -> dict[str, Any] | None:
    """Return the settings that a run would have in the study, None if it has no such run."""
    there = run.method in study.methods and run.variant in (PLAIN, *study.variants)
    return run_settings(study, run) if there else None


def _check_others(store: Store, runs: list[RunKey]) -> None:
    """Refuse a folder with a damaged run that is not among those to be done: it would be lost."""
    own = {run.folder(store.directory) for run in runs}
    for folder in sorted((store.directory / "runs").glob("*/*/seed-*")):
        files = [folder / name for name in RUN_FILES]
        for file in files if folder not in own else ():
            if file.is_file() and not whole(file):
                raise UserError(f"cannot read {file}, it looks damaged: {advice(file)}.")


def check(place: Workplace, variants: Iterable[str]) -> None:
    """Refuse before training what no run could do with: data, networks, shifts that do not fit."""
    try_shifts(place.study, place.dataset)
    for name in variants:
        model_of(place.study.variant(name), place.dataset)


def _do(place: Workplace, runs: list[RunKey], hear: Hear, make_crew: MakeCrew) -> dict[RunKey, str]:
    """Do the runs that are not complete, each after those it needs, and return why some failed."""
    # as the first process finds them: it writes while others read
    complete = processes.from_first([place.store.complete(run) for run in runs])
    left = [run for run, there in zip(runs, complete, strict=True) if not there]
    needs = needs_of(place, left)
    for run in dict.fromkeys([*needs, *runs]):
        hear(Event(run, "planned" if run in needs else "complete"))
        if run in needs and (file := place.store.damaged(run)) is not None:
            hear(Event(run, "note", f"{file.name} is damaged, so the run is done again"))
    schedule = Schedule(needs)
    with make_crew(place, Clerk(schedule, place.store, hear)) as crew:
        while schedule.waiting or schedule.busy:
            following = schedule.next() if crew.has_room() else None
            if following is None:
                crew.wait()
            else:
                schedule.start(following)
                crew.start(following)
    return schedule.failed


class Clerk:
    """Keeps the schedule by what is told of the runs, writes failures down, passes all on."""

    def __init__(self, schedule: Schedule, store: Store, hear: Hear) -> None:
        self.schedule, self.store, self.hear = schedule, store, hear

    def __call__(self, event: Event) -> None:
        if event.kind == "lost" and not self.schedule.lose(event.run):
            event = replace(event, kind="failed", text=f"{event.text}, {ATTEMPTS} times")
        if event.kind == "failed":
            self._put_down(event)
            return
        if event.kind == "done":
            self.schedule.end(event.run)
            self.store.drop_failure(event.run)
        self.hear(event)

    def _put_down(self, event: Event) -> None:
        """Tell of a run that failed and of those that build on it."""
        for run, reason in self.schedule.fail(event.run, event.text).items():
            self.store.keep_failure(run, f"{reason}\n\n{event.trace if run == event.run else ''}")
            self.hear(replace(event, run=run, text=reason))


def _write_pictures(study: Study, directory: Path, dataset: Dataset) -> None:
    if len(dataset.test.shape) == 3:  # sequences of pixels are images too
        write_pictures(directory, dataset.test, study.all_shifts(), study.all_outliers())


def gather(study: Study, store: Store) -> None:
    """Write rows.parquet from the scores of every complete run, if there is any."""
    tables = []
    for run in store.runs():
        rows = rows_of(read_table(run.folder(store.directory) / "scores.parquet"))
        key = {"study": study.name, **dataclasses.asdict(run)}
        tables.append(
            rows.select(
                *(polars.lit(value).alias(name) for name, value in key.items()), *rows.columns
            )
        )
    if tables:
        write_table(store.directory / "rows.parquet", polars.concat(tables))
