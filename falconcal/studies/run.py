"""One run of a study: train, measure, store."""

import dataclasses
import time
import traceback
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import polars
from torch import nn

from falconcal.core import distributed
from falconcal.core.layout import prefer_channels_last
from falconcal.core.method import Method, build_untrained, chooses_epoch, with_seed
from falconcal.core.registry import name_and_settings
from falconcal.data import PREDICTION_BATCH_SIZE, Batches, Dataset
from falconcal.data.part import count_tokens
from falconcal.errors import UserError
from falconcal.evaluation.sets_under_shift import sets_under_shift
from falconcal.evaluation.under_shift import score_under_shift
from falconcal.inference.model_file import save
from falconcal.io.atomic import write_text
from falconcal.io.output_folder import SETS_FILE, WEIGHTS_FILE, RunKey
from falconcal.methods import Ensemble
from falconcal.models.predict import predict
from falconcal.recalibration.calibrator import Calibrator
from falconcal.studies.base_runs import finished_members, joins_finished, runs_of_base
from falconcal.studies.building import (
    fit_with_drifted,
    load_study_dataset,
    make_study_model,
    study_validation,
    train_method,
)
from falconcal.studies.events import Event, EventHandler, RunReporter
from falconcal.studies.held_epochs import HeldEpochs, judge_epochs
from falconcal.studies.kin_record import fitted_families, kin_record
from falconcal.studies.provenance import provenance
from falconcal.studies.reference import (
    PLAIN_RUN,
    REFERENCE_RUN,
    held_epochs,
    load_reference,
    make_reference,
    reference_method,
)
from falconcal.studies.run_files import (
    load_weights,
    read_json,
    read_table,
    save_weights,
    to_json,
    write_table,
)
from falconcal.studies.stopwatch import Stopwatch
from falconcal.studies.store import Store
from falconcal.studies.study import Study
from falconcal.training import History, TrainingMethod, on_epoch
from falconcal.training.criterion import ShiftedValidation


@dataclass(frozen=True)
class StudyContext:
    """What the runs of a study share within a process."""

    study: Study
    store: Store
    measure_later: bool = False  # whether runs are scored on clean test data alone

    @cached_property
    def dataset(self) -> Dataset:
        return load_study_dataset(self.study)

    def validation(self, method: Method) -> Batches:
        """Return the validation data, also under shift where the method chooses an epoch."""
        return (
            self.shifted
            if chooses_epoch(method)
            else self.dataset.validation.batches(PREDICTION_BATCH_SIZE)
        )

    @cached_property
    def shifted(self) -> ShiftedValidation:
        """Validation data perturbed through the reference model, once for all runs."""
        reference = load_reference(self.study, self.store, self.dataset)
        return study_validation(self.study, self.dataset, reference)

    def method(self, run: RunKey) -> Method:
        if run == REFERENCE_RUN:
            return reference_method(self.study)
        return self.study.variant(run.variant).method(run.method, run.seed)


def run_and_report(context: StudyContext, run: RunKey, on_event: EventHandler) -> None:
    """Do a run and report its events; an error becomes an event, so that other runs go on."""
    try:
        _do(context, run, RunReporter(run, on_event))
    except Exception as error:  # a user's method may raise anything
        if distributed.world_size() > 1:
            raise  # the other processes of the group would wait forever
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        on_event(Event(run, "failed", f"{kind}{error}", trace=traceback.format_exc()))


def _do(context: StudyContext, run: RunKey, reporter: RunReporter) -> None:
    method = context.method(run)
    reporter.begin(0 if takes_finished(context, run, method) else epochs_of(method))
    started = time.perf_counter()
    if run == REFERENCE_RUN:
        with on_epoch(reporter.epoch):
            make_reference(context.study, context.store, context.dataset)
    else:
        _run(context, run, method, reporter)
    distributed.barrier()  # the next run may read this one's model
    reporter.end(time.perf_counter() - started)


def takes_finished(context: StudyContext, run: RunKey, method: Method) -> bool:
    """Return whether a run takes what another has trained, and trains nothing itself."""
    if joins_finished(method):
        return True
    if isinstance(method, Calibrator):
        return finished_base(context, run, method) is not None
    return held_for(context, run) is not None


def finished_base(context: StudyContext, run: RunKey, method: Method) -> RunKey | None:
    """Return the complete run whose model a run calibrates."""
    return next(filter(context.store.complete, runs_of_base(context.study, run, method)), None)


def held_for(context: StudyContext, run: RunKey) -> HeldEpochs | None:
    """Return the epochs of the reference's training that a run only has to judge."""
    held = held_epochs(context.study, context.store) if run == PLAIN_RUN else None
    return held if held is not None and held.complete() else None


def epochs_of(method: Method) -> int:
    """Return how many epochs a method trains for, over all members of an ensemble."""
    if joins_finished(method):
        return 0
    base = getattr(method, "base", None)
    inner = getattr(method, "epochs", 0) if base is None else epochs_of(base)
    return int(inner) * int(getattr(method, "size", 1))


def _run(context: StudyContext, run: RunKey, method: Method, reporter: RunReporter) -> None:
    """Train, evaluate and store one run."""
    own, store = context.study.variant(run.variant), context.store
    origin = provenance()
    origin["inputs"] = context.dataset.modality
    origin["resumed"] = store.has_checkpoint(run)  # the training time is then incomplete
    with store.writing(run) as folder:
        trained = _fit(context, run, method, reporter)
        watch = Stopwatch()
        scores = _score(trained.model, context, reporter)
        origin |= {**trained.record, **watch.read("evaluation")}
        origin |= kin_record(context.study, trained.families)
        _save(folder / WEIGHTS_FILE, trained.model, own, context.dataset, method, reporter)
        write_table(folder / "history.parquet", trained.history)
        write_table(folder / "scores.parquet", scores)
        if context.study.conformal is not None:
            write_table(folder / SETS_FILE, _measured_sets(trained.model, context))
        _write_json(folder / "settings.json", run_settings(context.study, run))
        _write_json(folder / "run.json", origin)
    store.drop_checkpoint(run)


def _score(model: nn.Module, context: StudyContext, reporter: RunReporter) -> polars.DataFrame:
    shifts, outliers = context.study.all_shifts(), context.study.all_outliers()
    if context.measure_later:
        shifts, outliers = [], []
    levels = 1 + sum(len(shift.levels) - 1 for shift in shifts) + len(outliers)
    counted = count()

    def progress(shift: str, level: int) -> None:
        reporter.measuring(shift, level, next(counted), levels)

    return score_under_shift(model, context.dataset.test, shifts, outliers, progress=progress)


def _measured_sets(model: nn.Module, context: StudyContext) -> polars.DataFrame:
    """Return coverage and size of conformal sets, which the validation data calibrate."""
    seen = predict(model, context.dataset.validation)
    shifts = [] if context.measure_later else context.study.all_shifts()
    alpha = context.study.conformal
    assert alpha is not None
    return sets_under_shift(model, seen, context.dataset.test, shifts, alpha)


@dataclass(frozen=True, eq=False)
class FittedRun:
    """A fitted model, its history, what run.json records of the training, what it has seen."""

    model: nn.Module
    history: polars.DataFrame
    record: dict[str, Any]
    families: list[str]  # of shifts that it was fitted on


def _fit(context: StudyContext, run: RunKey, method: Method, reporter: RunReporter) -> FittedRun:
    study, dataset = context.study.variant(run.variant), context.dataset
    if joins_finished(method):
        return _join(context, run, method, reporter)
    if chooses_epoch(method) and "shifted" not in vars(context):
        reporter.note("perturbing the validation data through the reference model")
    validation = context.validation(method)
    base = finished_base(context, run, method)
    if isinstance(method, Calibrator):
        method = without_tested(study, method, reporter)
    if base is not None and isinstance(method, Calibrator):
        reporter.note(f"calibrating the model of {base}")
        return _calibrate(study, context.store, dataset, base, method, validation)
    held = held_for(context, run)
    if held is not None and isinstance(method, TrainingMethod):
        reporter.note("judging the epochs of the reference model, which is the same training")
        return _judge(study, dataset, held, method, validation, reporter)
    watch, history = Stopwatch(), History()
    with history.recording(), on_epoch(reporter.epoch), context.store.checkpointing(run):
        model = train_method(study, dataset, run.seed, method, validation)
    record = {**watch.read("training"), "kept_epoch": history[-1].kept if history else None}
    return FittedRun(model, history.table(), record, fitted_families(method, model))


def _judge(
    study: Study,
    dataset: Dataset,
    held: HeldEpochs,
    method: TrainingMethod,
    validation: Batches,
    reporter: RunReporter,
) -> FittedRun:
    """Keep the best epoch of a training that has ended; its time is counted here too."""
    watch, history = Stopwatch(), History()
    structure = build_untrained(method, make_study_model(study, dataset, method.seed))
    # as in training: the memory layout changes rounding
    prefer_channels_last(structure, dataset.validation.head(2).inputs)
    with history.recording(), on_epoch(reporter.epoch):
        model = judge_epochs(held, method, structure, validation)
    spent = with_seconds_of(held.recorded()[1], watch.read("training"))
    record = {**spent, "kept_epoch": history[-1].kept}
    return FittedRun(model, history.table(), record, fitted_families(method, model))


def with_seconds_of(earlier: dict[str, Any], seconds: dict[str, float]) -> dict[str, float]:
    """Return seconds with those that an earlier training spent; what that lacks is left out."""
    return {name: seconds[name] + earlier[name] for name in seconds if name in earlier}


def without_tested(study: Study, method: Calibrator, reporter: RunReporter) -> Calibrator:
    """Return a calibrator that is fitted on nothing that the study tests, and say what that was."""
    mine = method.ladder.tested_families((*study.shifts, *study.outliers))
    if not mine:
        return method
    reporter.note(f"not fitted on {', '.join(mine)}, which the study tests")
    return dataclasses.replace(method, leave_out=tuple(mine))


def _calibrate(
    study: Study,
    store: Store,
    dataset: Dataset,
    base: RunKey,
    method: Calibrator,
    validation: Batches,
) -> FittedRun:
    """Calibrate the model of another run; the time of its training is counted here too."""
    watch, folder = Stopwatch(), base.folder(store.directory)
    model = load_run_model(study, store, dataset, base, method.base)
    train = dataset.train.batches(PREDICTION_BATCH_SIZE)
    alone = dataclasses.replace(method, base=None)
    fitted = fit_with_drifted(study, dataset, alone, model, train, validation)
    origin = read_json(folder / "run.json")
    spent = with_seconds_of(origin, watch.read("training"))
    record = {**spent, "kept_epoch": origin.get("kept_epoch"), "base": str(base)}
    # the model of the base was loaded, so what that was fitted on is in its own record
    families = [*origin.get("fitted_on", ()), *fitted_families(method, fitted)]
    families = list(dict.fromkeys(families))
    return FittedRun(fitted, read_table(folder / "history.parquet"), record, families)


def _join(context: StudyContext, run: RunKey, method: Ensemble, reporter: RunReporter) -> FittedRun:
    """Join the models of finished runs; the time of their trainings is counted here too."""
    study, store = context.study.variant(run.variant), context.store
    members = finished_members(context.study, store, run, method)
    reporter.note(f"joining the models of {', '.join(map(str, members))}")
    watch = Stopwatch()
    models = [
        load_run_model(study, store, context.dataset, one, with_seed(method.base, one.seed))
        for one in members
    ]
    spent, folders = watch.read("training"), [one.folder(store.directory) for one in members]
    records = [read_json(folder / "run.json") for folder in folders]
    for record in records:
        spent = with_seconds_of(record, spent)
    families = [name for record in records for name in record.get("fitted_on", ())]
    return FittedRun(
        method.join(models),
        polars.concat([read_table(folder / "history.parquet") for folder in folders]),
        {**spent, "kept_epoch": None, "members": list(map(str, members))},
        list(dict.fromkeys(families)),
    )


def load_run_model(
    study: Study, store: Store, dataset: Dataset, run: RunKey, method: Method | None
) -> nn.Module:
    """Return the model of a finished run, which the method fitted."""
    structure = build_untrained(method, make_study_model(study, dataset, run.seed))
    model = load_weights(run.folder(store.directory) / WEIGHTS_FILE, structure)
    # as in training: the memory layout changes rounding
    prefer_channels_last(model, dataset.validation.head(2).inputs)
    return model


def _save(
    file: Path,
    model: nn.Module,
    study: Study,
    dataset: Dataset,
    method: Method,
    reporter: RunReporter,
) -> None:
    """Save a model for ``falconcal predict``, or only its weights if it cannot be rebuilt."""
    name, settings = name_and_settings("model", study.model)
    settings.pop("weights", None)  # the initial ones; the trained weights are saved
    try:
        save(
            model,
            file,
            name,
            arguments=settings or None,
            classes=dataset.classes,
            shape=dataset.train.shape,
            bounds=dataset.bounds,
            preparation=dataset.preparation,
            tokens=count_tokens(dataset.train),
            framing=getattr(dataset.train, "framing", None),
            method=method,
            validation=predict(model, dataset.validation),
        )
    except UserError as error:  # a user's network may depend on more than the shape of the data
        reporter.note(
            f"only the weights were saved, so falconcal predict cannot load this run: {error}"
        )
        save_weights(file, model)


def run_settings(study: Study, run: RunKey) -> dict[str, Any]:
    """Return what a run stores in settings.json."""
    resolved = study.variant(run.variant).resolved()
    shared = {name: value for name, value in resolved.items() if name not in ("methods", "seeds")}
    return {**dataclasses.asdict(run), "settings": resolved["methods"][run.method], "study": shared}


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, to_json(values))
