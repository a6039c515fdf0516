"""The runner: a study becomes runs, runs become rows."""

import dataclasses
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import polars
import torch
from torch import nn

from falconcal import processes
from falconcal.data import Batches, Dataset, few, few_tested, load_dataset
from falconcal.data.examples import count_tokens
from falconcal.errors import UsageError, UserError, unknown
from falconcal.evaluation import rows_of, score
from falconcal.files import write_text
from falconcal.layout import PLAIN, WEIGHTS, RunKey
from falconcal.method import Method, chooses_epoch, innermost, structure_of
from falconcal.models import make_model
from falconcal.predictions import predict
from falconcal.recalibration.calibrated import Recalibration
from falconcal.registry import name_and_settings
from falconcal.saving import save
from falconcal.selection import ShiftedValidation, shifted_validation
from falconcal.shifts import Shift, StoredShift, facts_of
from falconcal.studies.pictures import write_pictures
from falconcal.studies.provenance import provenance
from falconcal.studies.store import (
    Store,
    load_weights,
    read_json,
    read_table,
    save_weights,
    to_json,
    write_table,
)
from falconcal.studies.study import REFERENCE, Study
from falconcal.training import EpochRecord, History, watching
from falconcal.training.preparing import lay_out_weights


class Progress(Protocol):
    """Whoever wants to know how a study goes on."""

    def begin(self, run: RunKey, number: int, total: int, epochs: int) -> None: ...
    def note(self, text: str) -> None: ...
    def epoch(self, record: EpochRecord) -> None: ...
    def scoring(self, shift: str, level: int) -> None: ...
    def end(self, run: RunKey, seconds: float) -> None: ...
    def skip(self, run: RunKey, number: int, total: int) -> None: ...


def run_study(
    study: Study,
    directory: Path,
    progress: Progress,
    methods: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
) -> None:
    """Run what is not complete yet and write the rows of all that is."""
    runs = runs_of(study, methods, variants)
    store = Store(directory)
    with store.opened(study.resolved()):
        dataset = dataset_of(study)
        _try_shifts(study, dataset)
        validation = Validation(study, store, dataset, progress)
        # as the first process finds them: it writes while others read
        complete = processes.from_first([store.complete(run) for run in runs])
        for number, run in enumerate(runs, start=1):
            if complete[number - 1]:
                progress.skip(run, number, len(runs))
                continue
            method = study.variant(run.variant).method(run.method, run.seed)
            progress.begin(run, number, len(runs), getattr(innermost(method), "epochs", 0))
            started = time.perf_counter()
            _run(study, store, dataset, run, method, validation, progress)
            processes.wait()  # the next run may read this one's model
            progress.end(run, time.perf_counter() - started)
        if processes.first():
            gather(study, store)
            _write_pictures(study, directory, dataset)


def _write_pictures(study: Study, directory: Path, dataset: Dataset) -> None:
    if len(dataset.test.shape) == 3:  # sequences of pixels are images too
        write_pictures(directory, dataset.test, study.all_shifts(), study.all_outliers())


def dataset_of(study: Study) -> Dataset:
    """Load the dataset that a study names, with the settings it gives."""
    name, settings = name_and_settings("dataset", study.dataset)
    dataset = load_dataset(name, **settings)
    if study.examples is not None:
        dataset = few(dataset, study.examples)
    return dataset if study.test_examples is None else few_tested(dataset, study.test_examples)


def model_of(study: Study, dataset: Dataset, seed: int = 0) -> nn.Module:
    """Make the network that a study names, its first weights by the seed."""
    name, settings = name_and_settings("model", study.model)
    return make_model(name, dataset, seed, **settings)


def _try_shifts(study: Study, dataset: Dataset) -> None:
    """Find out before training whether shifts and outliers fit this data."""
    one, shifts = dataset.test.first(1), study.all_shifts()
    asked = any(isinstance(shift, Shift) and "model" in shift.needs for shift in shifts)
    model = model_of(study, dataset) if asked else None
    for shift in shifts:
        if isinstance(shift, StoredShift):
            _try_stored(shift, dataset)
        else:
            shift.at(one.inputs, shift.levels[-1], **facts_of(one, 0, one.labels, model))
    for outliers in study.all_outliers():
        next(outliers.batches(dataset.test, 1))


def _try_stored(shift: StoredShift, dataset: Dataset) -> None:
    """Refuse what should be stored of all test examples, in their order, and is not."""
    for level in shift.levels[1:]:
        stored = shift.level(level, dataset.test)
        if not shift.own_examples and not torch.equal(stored.labels, dataset.test.labels):
            raise UserError(
                f"expected the {len(dataset.test)} test examples of {dataset.name} at level "
                f"{level} of {shift.name}, got {len(stored)} examples with other labels: a study "
                "compares the same examples at every level. falconcal.evaluate takes any."
            )
        stored.read(slice(1))


def gather(study: Study, store: Store) -> None:
    """Write rows.parquet from the scores of every complete run."""
    tables = []
    for run in store.runs():
        rows = rows_of(read_table(run.folder(store.directory) / "scores.parquet"))
        key = {"study": study.name, **dataclasses.asdict(run)}
        tables.append(
            rows.select(
                *(polars.lit(value).alias(name) for name, value in key.items()), *rows.columns
            )
        )
    write_table(store.directory / "rows.parquet", polars.concat(tables))


def _score(
    model: nn.Module, study: Study, dataset: Dataset, progress: Progress
) -> polars.DataFrame:
    shifts, outliers = study.all_shifts(), study.all_outliers()
    return score(model, dataset.test, shifts, outliers, progress=progress.scoring)


class Validation:
    """The validation data of a study; where an epoch is chosen, shifted against the reference."""

    def __init__(self, study: Study, store: Store, dataset: Dataset, progress: Progress) -> None:
        self.study, self.store, self.dataset, self.progress = study, store, dataset, progress

    def of(self, method: Method) -> Batches:
        return self.shifted if chooses_epoch(method) else self.dataset.validation.batches(500)

    @cached_property
    def shifted(self) -> ShiftedValidation:
        """Perturbed through the reference model, once for all runs."""
        self.progress.note("validation data is perturbed through the reference model")
        reference = _reference(self.study, self.store, self.dataset)
        shifts = self.study.found(self.study.selection_shifts)
        return shifted_validation(self.dataset.validation, reference, shifts)


def _run(
    study: Study,
    store: Store,
    dataset: Dataset,
    run: RunKey,
    method: Method,
    validation: Validation,
    progress: Progress,
) -> None:
    """Train, evaluate and store one run."""
    own = study.variant(run.variant)
    origin = provenance()
    origin["resumed"] = store.has_checkpoint(run)  # then the training time is that of the rest
    with store.writing(run) as folder:
        trained = _fit(study, store, dataset, run, method, validation.of(method), progress)
        watch = Stopwatch()
        scores = _score(trained.model, study, dataset, progress)
        origin |= {**trained.facts, **watch.read("evaluation")}
        _save(folder / WEIGHTS, trained.model, own, dataset, method, progress)
        write_table(folder / "history.parquet", trained.history)
        write_table(folder / "scores.parquet", scores)
        _write_json(folder / "settings.json", _run_settings(own, run))
        _write_json(folder / "run.json", origin)
    store.drop_checkpoint(run)


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
class Fitted:
    """A fitted model, what happened in training, and what the run records of it."""

    model: nn.Module
    history: polars.DataFrame
    facts: dict[str, Any]


def _fit(
    study: Study,
    store: Store,
    dataset: Dataset,
    run: RunKey,
    method: Method,
    validation: Batches,
    progress: Progress,
) -> Fitted:
    base = _run_of_base(study, store, run, method)
    if base is not None and isinstance(method, Recalibration):
        progress.note(f"calibrating the model of {base}")
        return _calibrate(study.variant(run.variant), store, dataset, base, method, validation)
    watch, history = Stopwatch(), History()
    with history.recording(), watching(progress.epoch), store.checkpointing(run):
        model = train(study.variant(run.variant), dataset, run.seed, method, validation)
    facts = {**watch.read("training"), "kept_epoch": history[-1].kept if history else None}
    return Fitted(model, history.table(), facts)


def _run_of_base(study: Study, store: Store, run: RunKey, method: Method) -> RunKey | None:
    """Return the run that has trained just what the method calibrates, if it is complete."""
    if not isinstance(method, Recalibration):
        return None
    own, plain = study.variant(run.variant), study.variant(PLAIN)
    for name in study.methods:
        if own.method(name, run.seed) != method.base:
            continue
        # a variant that leaves the base alone has it in the plain run
        key = RunKey(run.variant if own.differs(plain, name) else PLAIN, name, run.seed)
        if store.complete(key):
            return key
    return None


def _calibrate(
    study: Study,
    store: Store,
    dataset: Dataset,
    base: RunKey,
    method: Recalibration,
    validation: Batches,
) -> Fitted:
    """Calibrate the model of another run; its training counts as if it had been done here."""
    watch, folder = Stopwatch(), base.folder(store.directory)
    structure = structure_of(method.base, model_of(study, dataset, base.seed))
    model = load_weights(folder / WEIGHTS, structure)
    lay_out_weights(model)  # as training does: other orders in memory round differently
    fitted = dataclasses.replace(method, base=None).fit(model, None, validation)
    origin = read_json(folder / "run.json")
    seconds = watch.read("training")
    spent = {name: seconds[name] + origin[name] for name in seconds if name in origin}
    facts = {**spent, "kept_epoch": origin.get("kept_epoch"), "base": str(base)}
    return Fitted(fitted, read_table(folder / "history.parquet"), facts)


def train(
    study: Study, dataset: Dataset, seed: int, method: Method, validation: Batches
) -> nn.Module:
    """Train a method on a study's network and data, all from one seed."""
    model = model_of(study, dataset, seed)
    return method.fit(model, dataset.training_batches(study.batch_size, seed), validation)


def _save(
    file: Path, model: nn.Module, study: Study, dataset: Dataset, method: Method, progress: Progress
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
            method=method,
            validation=predict(model, dataset.validation),
        )
    except UserError as error:  # a network from outside may look at more than the data's shape
        progress.note(f"the run keeps its weights alone, falconcal predict cannot use it: {error}")
        save_weights(file, model)


def _reference(study: Study, store: Store, dataset: Dataset) -> nn.Module:
    """Return the study's dropout model of seed 0, its last epoch, trained at most once a folder."""
    settings = {**study.methods[REFERENCE], "keep": "last"}
    settings.pop("patience", None)
    reference = dataclasses.replace(study, methods={REFERENCE: settings})
    weights = store.directory / "reference" / WEIGHTS
    same = RunKey(PLAIN, REFERENCE, 0).folder(store.directory) / WEIGHTS
    if not chooses_epoch(study.method(REFERENCE)) and same.exists():
        return load_weights(same, model_of(study, dataset))
    if weights.exists():
        return load_weights(weights, model_of(study, dataset))
    plain = dataset.validation.batches(500)
    model = train(reference, dataset, 0, reference.method(REFERENCE), plain)
    if processes.first():
        save_weights(weights, model)
    processes.wait()
    return model


def _run_settings(study: Study, run: RunKey) -> dict[str, Any]:
    resolved = study.resolved()
    shared = {name: value for name, value in resolved.items() if name not in ("methods", "seeds")}
    return {**dataclasses.asdict(run), "settings": resolved["methods"][run.method], "study": shared}


def runs_of(
    study: Study, methods: Iterable[str] | None = None, variants: Iterable[str] | None = None
) -> list[RunKey]:
    """Return the runs of a study, method x variant x seed, those that others build on first.

    The plain variant has all methods, another one those that it changes.
    """
    chosen = _chosen(f"method of the study {study.name}", methods, study.methods)
    names = _chosen(f"variant of the study {study.name}", variants, (PLAIN, *study.variants))
    plain = study.variant(PLAIN)
    keys = [
        (name, method)
        for name, variant in ((name, study.variant(name)) for name in names)
        for method in chosen
        if name == PLAIN or variant.differs(plain, method)
    ]
    if not keys:
        raise UsageError(
            f"nothing to run: no variant of {', '.join(names)} changes {', '.join(chosen)}."
        )
    return [RunKey(*key, seed) for seed in range(study.seeds) for key in keys]


def _chosen(kind: str, names: Iterable[str] | None, known: Collection[str]) -> list[str]:
    chosen = list(names) if names is not None else list(known)
    for name in chosen:
        if name not in known:
            raise unknown(kind, name, known)
    return list(dict.fromkeys(chosen))


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, to_json(values))
