"""The runner: a study becomes runs, runs become rows."""

import dataclasses
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import polars
from torch import nn

from falconcal.data import Batches, Dataset, load_dataset
from falconcal.errors import UserError, unknown
from falconcal.evaluation import rows_of, score
from falconcal.files import write_text
from falconcal.layout import PLAIN, WEIGHTS, RunKey
from falconcal.method import Method, innermost
from falconcal.models import make_model
from falconcal.predictions import predict
from falconcal.saving import save
from falconcal.selection import shifted_validation
from falconcal.shifts import find_shift
from falconcal.studies.pictures import write_pictures
from falconcal.studies.provenance import provenance
from falconcal.studies.store import (
    Store,
    load_weights,
    read_table,
    save_weights,
    to_json,
    write_table,
)
from falconcal.studies.study import REFERENCE, Study
from falconcal.training import EpochRecord, History, watching


class Progress(Protocol):
    """Whoever wants to know how a study goes on."""

    def begin(self, run: RunKey, number: int, total: int, epochs: int) -> None: ...
    def note(self, text: str) -> None: ...
    def epoch(self, record: EpochRecord) -> None: ...
    def scoring(self, shift: str, level: int) -> None: ...
    def end(self, run: RunKey, seconds: float) -> None: ...
    def skip(self, run: RunKey, number: int, total: int) -> None: ...


def run_study(
    study: Study, directory: Path, progress: Progress, methods: Iterable[str] | None = None
) -> None:
    """Run what is not complete yet and write the rows of all that is."""
    chosen = _chosen(study, methods)
    runs = [RunKey(PLAIN, method, seed) for seed in range(study.seeds) for method in chosen]
    store = Store(directory)
    with store.opened(study.resolved()):
        dataset = load_dataset(study.dataset)
        _try_shifts(study, dataset)
        for number, run in enumerate(runs, start=1):
            if store.complete(run):
                progress.skip(run, number, len(runs))
                continue
            method = study.method(run.method, run.seed)
            progress.begin(run, number, len(runs), getattr(innermost(method), "epochs", 0))
            started = time.perf_counter()
            _run(study, store, dataset, run, method, progress)
            progress.end(run, time.perf_counter() - started)
        gather(study, store)
        if dataset.modality == "image":
            write_pictures(directory, dataset.test, study.all_shifts())


def _try_shifts(study: Study, dataset: Dataset) -> None:
    """Find out before training whether the shifts can be applied to this data."""
    for shift in study.all_shifts():
        shift.at(dataset.test.inputs[:1], shift.levels[-1])


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


def _run(
    study: Study, store: Store, dataset: Dataset, run: RunKey, method: Method, progress: Progress
) -> None:
    """Train, evaluate and store one run."""
    history, origin = History(), provenance()
    validation = _validation(study, store, dataset, method, progress)
    origin["resumed"] = store.has_checkpoint(run)  # then the training time is that of the rest
    with store.writing(run) as folder:
        started = time.perf_counter()
        with history.recording(), watching(progress.epoch), store.checkpointing(run):
            model = train(study, dataset, run.seed, method, validation)
        trained = time.perf_counter()
        scores = score(model, dataset.test, study.all_shifts(), progress=progress.scoring)
        origin["training_seconds"] = trained - started
        origin["kept_epoch"] = history[-1].kept if history else None
        origin["evaluation_seconds"] = time.perf_counter() - trained
        _save(folder / WEIGHTS, model, study, dataset, method, progress)
        write_table(folder / "history.parquet", history.table())
        write_table(folder / "scores.parquet", scores)
        _write_json(folder / "settings.json", _run_settings(study, run))
        _write_json(folder / "run.json", origin)
    store.drop_checkpoint(run)


def train(
    study: Study, dataset: Dataset, seed: int, method: Method, validation: Batches
) -> nn.Module:
    """Train a method on a study's network and data, all from one seed."""
    model = make_model(study.model, dataset, seed)
    batches = dataset.train.batches(study.batch_size, shuffle=True, seed=seed)
    return method.fit(model, batches, validation)


def _save(
    file: Path, model: nn.Module, study: Study, dataset: Dataset, method: Method, progress: Progress
) -> None:
    """Write a model that ``falconcal predict`` takes, or weights alone if it cannot be rebuilt."""
    inputs = dataset.train.inputs
    try:
        save(
            model,
            file,
            study.model,
            classes=dataset.classes,
            shape=inputs.shape[1:],
            bounds=dataset.bounds,
            tokens=None if inputs.is_floating_point() else int(inputs.max()) + 1,
            method=method,
            validation=predict(model, dataset.validation),
        )
    except UserError as error:  # a network from outside may look at more than the data's shape
        progress.note(f"the run keeps its weights alone, falconcal predict cannot use it: {error}")
        save_weights(file, model)


def _validation(
    study: Study, store: Store, dataset: Dataset, method: Method, progress: Progress
) -> Batches:
    """Return validation data: shifted once against the reference model if an epoch is chosen."""
    plain = dataset.validation.batches(500)
    if getattr(innermost(method), "keep", "last") == "last":
        return plain
    progress.note("validation data is perturbed through the reference model")
    reference = _reference(study, store, dataset)
    shifts = [find_shift(name, study.centre) for name in study.selection_shifts]
    return shifted_validation(dataset.validation, reference, shifts)


def _reference(study: Study, store: Store, dataset: Dataset) -> nn.Module:
    """Return the study's dropout model of seed 0, its last epoch, trained at most once a folder."""
    settings = {**study.methods[REFERENCE], "keep": "last"}
    reference = dataclasses.replace(study, methods={REFERENCE: settings})
    weights = store.directory / "reference" / WEIGHTS
    same = RunKey(PLAIN, REFERENCE, 0).folder(store.directory) / WEIGHTS
    if study.methods[REFERENCE].get("keep", "last") == "last" and same.exists():
        return load_weights(same, make_model(study.model, dataset))
    if weights.exists():
        return load_weights(weights, make_model(study.model, dataset))
    plain = dataset.validation.batches(500)
    model = train(reference, dataset, 0, reference.method(REFERENCE), plain)
    save_weights(weights, model)
    return model


def _run_settings(study: Study, run: RunKey) -> dict[str, Any]:
    resolved = study.resolved()
    shared = {name: value for name, value in resolved.items() if name not in ("methods", "seeds")}
    return {**dataclasses.asdict(run), "settings": resolved["methods"][run.method], "study": shared}


def _chosen(study: Study, methods: Iterable[str] | None) -> list[str]:
    chosen = list(methods) if methods is not None else list(study.methods)
    for name in chosen:
        if name not in study.methods:
            raise unknown(f"method of the study {study.name}", name, study.methods)
    return list(dict.fromkeys(chosen))


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, to_json(values))
