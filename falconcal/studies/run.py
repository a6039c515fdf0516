"""One run of a study: trained, measured, stored."""

import dataclasses
import time
import traceback
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars
from torch import nn

from falconcal.core import distributed
from falconcal.core.method import Method, build_untrained, chooses_epoch
from falconcal.core.registry import name_and_settings
from falconcal.data import PREDICTION_BATCH_SIZE, Batches, Dataset
from falconcal.data.part import count_tokens
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import score_under_shift
from falconcal.inference.model_file import save
from falconcal.io.atomic import write_text
from falconcal.io.output_folder import DEFAULT_VARIANT, WEIGHTS_FILE, RunKey
from falconcal.models.predict import predict
from falconcal.recalibration.calibrator import Calibrator
from falconcal.studies.building import load_study_dataset, make_study_model, train_method
from falconcal.studies.events import Event, EventHandler, RunReporter
from falconcal.studies.provenance import provenance
from falconcal.studies.reference import (
    REFERENCE_RUN,
    load_reference,
    make_reference,
    reference_method,
)
from falconcal.studies.store import (
    Store,
    load_weights,
    read_json,
    read_table,
    save_weights,
    to_json,
    write_table,
)
from falconcal.studies.study import Study
from falconcal.training import History, on_epoch
from falconcal.training.model_setup import weights_to_channels_last
from falconcal.training.selection import ShiftedValidation, shifted_validation


@dataclass(frozen=True)
class StudyContext:
    """What the runs of a study share in a process."""

    study: Study
    store: Store

    @cached_property
    def dataset(self) -> Dataset:
        return load_study_dataset(self.study)

    def validation(self, method: Method) -> Batches:
        """Return the validation data; where an epoch is chosen, shifted against the reference."""
        return (
            self.shifted
            if chooses_epoch(method)
            else self.dataset.validation.batches(PREDICTION_BATCH_SIZE)
        )

    @cached_property
    def shifted(self) -> ShiftedValidation:
        """Perturbed through the reference model, once for all runs."""
        reference = load_reference(self.study, self.store, self.dataset)
        shifts = self.study.found(self.study.selection_shifts)
        examples = self.study.selection_examples
        return shifted_validation(self.dataset.validation, reference, shifts, examples)

    def method(self, run: RunKey) -> Method:
        if run == REFERENCE_RUN:
            return reference_method(self.study)
        return self.study.variant(run.variant).method(run.method, run.seed)


def run_and_report(place: StudyContext, run: RunKey, on_event: EventHandler) -> None:
    """Do a run and tell how it goes; whatever goes wrong in it is told, and others can go on."""
    try:
        _do(place, run, RunReporter(run, on_event))
    except Exception as error:  # a method from outside may fail in any way
        if distributed.world_size() > 1:
            raise  # the others of the group would wait for this one for ever
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        on_event(Event(run, "failed", f"{kind}{error}", trace=traceback.format_exc()))


def _do(place: StudyContext, run: RunKey, voice: RunReporter) -> None:
    method = place.method(run)
    voice.begin(epochs_of(method))
    started = time.perf_counter()
    if run == REFERENCE_RUN:
        with on_epoch(voice.epoch):
            make_reference(place.study, place.store, place.dataset)
    else:
        _run(place, run, method, voice)
    distributed.barrier()  # the next run may read this one's model
    voice.end(time.perf_counter() - started)


def epochs_of(method: Method) -> int:
    """Return how many epochs a method trains for, those of all members of an ensemble."""
    base = getattr(method, "base", None)
    inner = getattr(method, "epochs", 0) if base is None else epochs_of(base)
    return int(inner) * int(getattr(method, "size", 1))


def _run(place: StudyContext, run: RunKey, method: Method, voice: RunReporter) -> None:
    """Train, evaluate and store one run."""
    own, store = place.study.variant(run.variant), place.store
    origin = provenance()
    origin["resumed"] = store.has_checkpoint(run)  # then the training time is that of the rest
    with store.writing(run) as folder:
        trained = _fit(place, run, method, voice)
        watch = Stopwatch()
        scores = _score(trained.model, place, voice)
        origin |= {**trained.facts, **watch.read("evaluation")}
        _save(folder / WEIGHTS_FILE, trained.model, own, place.dataset, method, voice)
        write_table(folder / "history.parquet", trained.history)
        write_table(folder / "scores.parquet", scores)
        _write_json(folder / "settings.json", run_settings(place.study, run))
        _write_json(folder / "run.json", origin)
    store.drop_checkpoint(run)


def _score(model: nn.Module, place: StudyContext, voice: RunReporter) -> polars.DataFrame:
    shifts, outliers = place.study.all_shifts(), place.study.all_outliers()
    return score_under_shift(model, place.dataset.test, shifts, outliers, progress=voice.measuring)


class Stopwatch:
    """Seconds by the clock, and those that processors were at work for this process."""

    def __init__(self) -> None:
        self.wall, self.processors = time.perf_counter(), time.process_time()

    def read(self, what: str) -> dict[str, float]:
        return {
            f"{what}_seconds": time.perf_counter() - self.wall,
            f"{what}_cpu_seconds": time.process_time() - self.processors,
        }


@dataclass(frozen=True, eq=False)
class FittedRun:
    """A fitted model, what happened in training, and what the run records of it."""

    model: nn.Module
    history: polars.DataFrame
    facts: dict[str, Any]


def _fit(place: StudyContext, run: RunKey, method: Method, voice: RunReporter) -> FittedRun:
    study, dataset = place.study.variant(run.variant), place.dataset
    if chooses_epoch(method) and "shifted" not in vars(place):
        voice.note("validation data is perturbed through the reference model")
    validation = place.validation(method)
    base = next(filter(place.store.complete, runs_of_base(place.study, run, method)), None)
    if base is not None and isinstance(method, Calibrator):
        voice.note(f"calibrating the model of {base}")
        return _calibrate(study, place.store, dataset, base, method, validation)
    watch, history = Stopwatch(), History()
    with history.recording(), on_epoch(voice.epoch), place.store.checkpointing(run):
        model = train_method(study, dataset, run.seed, method, validation)
    facts = {**watch.read("training"), "kept_epoch": history[-1].kept if history else None}
    return FittedRun(model, history.table(), facts)


def runs_of_base(study: Study, run: RunKey, method: Method) -> list[RunKey]:
    """Return the runs of the study that train just what the method calibrates."""
    if not isinstance(method, Calibrator):
        return []
    own, plain = study.variant(run.variant), study.variant(DEFAULT_VARIANT)
    same = [name for name in study.methods if own.method(name, run.seed) == method.base]
    # a variant that leaves the base alone has it in the plain run
    return [
        RunKey(run.variant if own.differs(plain, name) else DEFAULT_VARIANT, name, run.seed)
        for name in same
    ]


def _calibrate(
    study: Study,
    store: Store,
    dataset: Dataset,
    base: RunKey,
    method: Calibrator,
    validation: Batches,
) -> FittedRun:
    """Calibrate the model of another run; its training counts as if it had been done here."""
    watch, folder = Stopwatch(), base.folder(store.directory)
    structure = build_untrained(method.base, make_study_model(study, dataset, base.seed))
    model = load_weights(folder / WEIGHTS_FILE, structure)
    weights_to_channels_last(model)  # as training does: other orders in memory round differently
    fitted = dataclasses.replace(method, base=None).fit(model, None, validation)
    origin = read_json(folder / "run.json")
    seconds = watch.read("training")
    spent = {name: seconds[name] + origin[name] for name in seconds if name in origin}
    facts = {**spent, "kept_epoch": origin.get("kept_epoch"), "base": str(base)}
    return FittedRun(fitted, read_table(folder / "history.parquet"), facts)


def _save(
    file: Path, model: nn.Module, study: Study, dataset: Dataset, method: Method, voice: RunReporter
) -> None:
    """Write a model that ``falconcal predict`` takes, or weights alone if it cannot be rebuilt."""
    name, settings = name_and_settings("model", study.model)
    settings.pop("weights", None)  # from which it began, gone in the weights that are saved
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
    except UserError as error:  # a network from outside may look at more than the data's shape
        voice.note(f"the run keeps its weights alone, falconcal predict cannot use it: {error}")
        save_weights(file, model)


def run_settings(study: Study, run: RunKey) -> dict[str, Any]:
    """Return what a run of a study stores as its settings."""
    resolved = study.variant(run.variant).resolved()
    shared = {name: value for name, value in resolved.items() if name not in ("methods", "seeds")}
    return {**dataclasses.asdict(run), "settings": resolved["methods"][run.method], "study": shared}


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, to_json(values))
