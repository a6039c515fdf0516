"""Measure finished runs under further shifts, all of them in one pass over each shifted batch.

Each shift is stored when all runs are measured under it, in files beside the runs; at the end the
files become part of the runs' scores. A command that is interrupted loses one shift at most.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars
import torch
from torch import nn

from falconcal.core.method import Method
from falconcal.errors import UsageError, UserError, unknown_name_error
from falconcal.evaluation.under_shift import CLEAN, score_together
from falconcal.io.output_folder import RunKey
from falconcal.recalibration.calibrated_model import CalibratedModel
from falconcal.recalibration.calibrator import Calibrator
from falconcal.shifts import AnyShift, Outliers, expand_groups, named_shifts
from falconcal.studies.building import check_tests
from falconcal.studies.run import StudyContext, load_run_model
from falconcal.studies.run_files import is_whole, read_json, read_table, write_table
from falconcal.studies.runner import collect_rows, write_study_pictures
from falconcal.studies.store import Store
from falconcal.studies.study import Study, stored_study, with_tests


@dataclass(frozen=True)
class Measurement:
    """What is asked for: which runs of a folder, under which shifts and outliers."""

    directory: Path
    shifts: tuple[
        str, ...
    ] = ()  # also names of groups; neither these nor outliers: what is missing
    outliers: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    seeds: int | None = None  # the runs with seeds below it
    trust_code: tuple[str, ...] = ()


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
    runs = _chosen_runs(store, request)
    values = store.settings()
    before = _stored_study(values, request)
    shifts, outliers = _asked(before, request)
    names = _names(shifts), _names(outliers)
    _check_not_fitted_on(store, before, runs, (*names[0], *names[1]))
    context = StudyContext(with_tests(before, *names), store)
    with store.opened(values):
        left = _left(store, before, runs, (*names[0], *names[1]))
        _measure(context, shifts, outliers, left, on_progress)
        return _conclude(context, before, *names)


def _names(tests: Iterable[AnyShift | Outliers]) -> tuple[str, ...]:
    return tuple(test.name for test in tests)


def _stored_study(values: Mapping[str, Any], request: Measurement) -> Study:
    """Return the folder's study; names that the caller gives are trusted."""
    study = stored_study(values, str(request.directory / "study.json"), request.trust_code)
    return replace(study, trust=study.trust.typed([*request.shifts, *request.outliers]))


def _chosen_runs(store: Store, request: Measurement) -> list[RunKey]:
    """Return the finished runs that are asked for."""
    finished = store.runs()
    if not finished:
        raise UsageError(
            f"expected an output folder with finished runs, got {store.directory}: run a study "
            "into it first, with falconcal run STUDY --out FOLDER."
        )
    _check_names("method", request.methods, [run.method for run in finished])
    _check_names("variant", request.variants, [run.variant for run in finished])
    chosen = [
        run
        for run in finished
        if (request.methods is None or run.method in request.methods)
        and (request.variants is None or run.variant in request.variants)
        and (request.seeds is None or run.seed < request.seeds)
    ]
    if not chosen:
        raise UsageError(f"{store.directory} has no finished runs of these seeds and methods.")
    return chosen


def _check_names(kind: str, names: Iterable[str] | None, finished: list[str]) -> None:
    for name in names or ():
        if name not in finished:
            raise unknown_name_error(f"{kind} of the finished runs", name, dict.fromkeys(finished))


def _asked(study: Study, request: Measurement) -> tuple[list[AnyShift], list[Outliers]]:
    """Return the shifts and outliers that are asked for, groups by their members."""
    if not request.shifts and not request.outliers:
        return study.all_shifts(), study.all_outliers()
    shifts, outliers = expand_groups(request.shifts), tuple(dict.fromkeys(request.outliers))
    for kind, names, others in (
        ("shifts", outliers, (*study.shifts, *study.selection_shifts)),
        ("outliers", shifts, study.outliers),
    ):
        for name in names:
            if name in others:
                raise UsageError(f"{name!r} is among the {kind} of the study: use --{kind}.")
    return study.find_shifts(shifts), study.find_outlier_sets(outliers)


def _check_not_fitted_on(
    store: Store, study: Study, runs: list[RunKey], names: tuple[str, ...]
) -> None:
    """Refuse to test a run on what its calibrator was fitted on."""
    for run in runs:
        method = study.variant(run.variant).method(run.method, run.seed)
        then = read_json(run.folder(store.directory) / "settings.json")["study"]
        known = (*then["shifts"], *then.get("outliers", ()))  # and so left out of the fit
        seen = sorted(set(_fitted_on(method, names)) - named_shifts(known))
        if seen:
            raise UsageError(
                f"{run} was fitted on {', '.join(seen)}: nothing is tested on what it was fitted "
                "on. Leave it out of --shifts and --outliers, choose other --methods, or name it "
                "in the study and run that into another folder."
            )


def _fitted_on(method: Method | None, names: tuple[str, ...]) -> Iterator[str]:
    while method is not None:
        if isinstance(method, Calibrator):
            left_out = named_shifts(method.leave_out)
            yield from (one for one in method.ladder.tested_families(names) if one not in left_out)
        method = getattr(method, "base", None)


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
    """Counts levels, and tells how far the measurement has come after each batch."""

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


class RunModels:
    """The models of finished runs; a calibrated one has the base run's own module inside.

    Args:
        context: The study and its folder.
    """

    def __init__(self, context: StudyContext) -> None:
        self.context = context
        self.models: dict[RunKey, nn.Module] = {}
        self.by_title = {str(run): run for run in context.store.runs()}

    def of(self, run: RunKey) -> nn.Module:
        """Return the model of a run, loaded once."""
        if run not in self.models:
            model = self._load(run)
            base = self._base(run)
            if base is not None and isinstance(model, CalibratedModel):
                own = self.of(base)
                model.model = own if same_weights(own, model.model) else model.model
            self.models[run] = model
        return self.models[run]

    def of_all(self, runs: Iterable[RunKey]) -> dict[RunKey, nn.Module]:
        """Return the models of several runs."""
        return {run: self.of(run) for run in runs}

    def _load(self, run: RunKey) -> nn.Module:
        study = self.context.study.variant(run.variant)
        method = study.method(run.method, run.seed)
        return load_run_model(study, self.context.store, self.context.dataset, run, method)

    def _base(self, run: RunKey) -> RunKey | None:
        """Return the run whose model was calibrated, if it is still in the folder."""
        record = read_json(run.folder(self.context.store.directory) / "run.json")
        return self.by_title.get(str(record.get("base")))


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    """Return whether two models are of one kind and hold the same numbers."""
    states = first.state_dict(), second.state_dict()
    return (
        type(first) is type(second)
        and states[0].keys() == states[1].keys()
        and all(torch.equal(states[0][name], states[1][name]) for name in states[0])
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
