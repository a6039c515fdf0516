"""The search: train the reference, plan the trials, let workers do them, choose the best."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, repeat
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import optuna
from torch import nn

from falconcal.core import child_processes
from falconcal.core.method import build_untrained
from falconcal.core.settings import as_dict
from falconcal.data import Dataset
from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import DEFAULT_VARIANT, file_name
from falconcal.io.trial_rows import TrialRow
from falconcal.studies import Study
from falconcal.studies.building import (
    load_study_dataset,
    make_study_model,
    study_validation,
    train_method,
)
from falconcal.studies.reference import load_reference
from falconcal.studies.run_files import is_whole, load_weights, save_weights
from falconcal.studies.store import Store
from falconcal.studies.study_checks import REFERENCE_METHOD
from falconcal.studies.tuning.budget import Tuning, budgeted, read_tuning
from falconcal.studies.tuning.choice import write_best
from falconcal.studies.tuning.spaces import (
    Point,
    Space,
    check_search,
    find_space,
    points,
    study_point,
)
from falconcal.studies.tuning.target import TuningTarget, find_target
from falconcal.studies.tuning.trial import TrialContext, run_trial, trial_method
from falconcal.studies.tuning.trial_store import TrialStore, check_storage
from falconcal.training.criterion import ShiftedValidation

STARTUP_TRIALS = 4  # that must end before any is pruned
WORKER_POLL_SECONDS = 1.0
TrialCallback = Callable[[TrialRow], None]


@dataclass(frozen=True)
class Search:
    """A search as the command asks for it: of which method, how many trials, stored where."""

    study: Study
    method: str
    trials: int
    directory: Path
    storage: str | None = None
    seed: int = 0
    prune: bool = True
    also_score_test: bool = False

    @property
    def tuning(self) -> Tuning:
        return read_tuning(self.study.tuning)

    @property
    def target(self) -> TuningTarget:
        return find_target(self.study, self.method)

    @property
    def space(self) -> Space:
        return find_space(self.study, self.target)

    def plan(self) -> Iterator[Point]:
        """Return the points of the trials, an empty one for each that Optuna will choose."""
        planned = points(self.space, study_point(self.target, self.space), self.seed)
        if self.tuning.sampler == "random":
            return islice(planned, self.trials)
        return islice((*islice(planned, 1), *repeat({}, self.trials)), self.trials)

    def identity(self) -> dict[str, Any]:
        """Return the settings that all trials of a folder share."""
        names = {find_target(self.study, name).name for name in self.study.methods}
        spaces = {name: find_space(self.study, find_target(self.study, name)) for name in names}
        # the budget says how many examples judge a trial
        study = replace(self.study.variant(DEFAULT_VARIANT), selection_examples=None)
        return {
            **study.resolved(),
            "tuning": {**as_dict(self.tuning), "seed": self.seed},
            "search": {
                name: {setting: values.plain() for setting, values in space.items()}
                for name, space in sorted(spaces.items())
            },
        }


def tune(
    search: Search,
    workers: int = 1,
    on_trial: TrialCallback = lambda _: None,
    on_begin: Callable[[int], None] = lambda _: None,
) -> list[TrialRow]:
    """Do the trials that are left, write the best settings, and return the rows of all trials.

    ``on_trial`` is called with the row of each trial of the method that ends meanwhile,
    ``on_begin`` before the first of them with how many had ended.
    """
    check_request(search, workers)
    store = Store(search.directory)
    store.check(search.identity())  # before anything is written, and again under the lock
    dataset = budgeted(load_study_dataset(search.study), search.tuning)
    with child_processes.limited_threads(1), store.opened(search.identity(), wait=-1):
        context = make_trial_context(search, dataset)
        trial_store = TrialStore(search.directory, search.storage, search.study.name)
        trials = _trials(search, trial_store)
        trial_store.requeue_lost(trials)
        trial_store.plan(trials, search.plan())
    notify = TrialNotifier(trial_store, search.target.name, on_trial)
    on_begin(notify.known)
    try:
        if workers == 1:
            _work(search, context, trial_store, notify)
        else:
            del context  # each worker builds its own
            _work_in_processes(search, trial_store, workers, notify)
        return _conclude(search, trial_store)
    finally:
        trial_store.close()


def _conclude(search: Search, trial_store: TrialStore) -> list[TrialRow]:
    """Write the rows of all trials, and the best settings of each method."""
    with trial_store.lock:  # another command with fewer trials may end at the same time
        trial_store.write_rows()
        rows = trial_store.rows()
        # trials of a method that has left the study stay, but no run could use its settings
        known = [row for row in rows if row["method"] in search.study.methods]
        targets = {row["method"]: find_target(search.study, row["method"]) for row in known}
        write_best(search.directory, search.study.name, known, targets)
    return rows


def check_request(search: Search, workers: int) -> None:
    """Refuse a search that cannot be done, before anything is written."""
    if search.trials < 1 or workers < 1 or search.seed < 0:
        raise UsageError(
            f"expected at least 1 trial, 1 worker and a seed of 0 or more, got {search.trials}, "
            f"{workers} and {search.seed}."
        )
    if REFERENCE_METHOD not in search.study.methods:
        raise UsageError(
            f"tuning needs the method {REFERENCE_METHOD} in the study: its model perturbs the "
            "validation data for all methods."
        )
    _ = search.tuning, search.space
    check_search(search.study)
    check_storage(search.storage)


def make_trial_context(search: Search, dataset: Dataset) -> TrialContext:
    """Return what trials share; the reference model is trained once per folder and stored there."""
    study = search.study
    reference = _reference(search, dataset)
    # the budget has cut the validation data down already
    validation = study_validation(study, dataset, reference, len(dataset.validation))
    return TrialContext(
        study=study,
        target=search.target,
        space=search.space,
        tuning=search.tuning,
        seed=search.seed,
        dataset=dataset,
        validation=validation,
        weights=search.directory / "trials",
        base=_calibrated_base(search, dataset, validation),
        also_score_test=search.also_score_test,
    )


def _calibrated_base(
    search: Search, dataset: Dataset, validation: ShiftedValidation
) -> nn.Module | None:
    """Return what a calibrator that is tuned itself calibrates, trained once per folder."""
    calibrator = search.target.calibrator
    if calibrator is None:
        return None
    if calibrator.base is None:
        raise UsageError(f"{search.method} has no base: name the method that it calibrates.")
    method = trial_method(calibrator.base, search.tuning, search.seed, {}, trust=search.study.trust)
    file = search.directory / "trials" / file_name(search.target.name) / "base.safetensors"
    if is_whole(file):
        model = make_study_model(search.study, dataset, search.seed)
        return load_weights(file, build_untrained(method, model))
    trained = train_method(search.study, dataset, search.seed, method, validation)
    save_weights(file, trained)
    return trained


def _reference(search: Search, dataset: Dataset) -> nn.Module:
    """Return the study's dropout model, seed 0, last epoch, trained with the budget of a trial."""
    method = trial_method(search.study.method(REFERENCE_METHOD), search.tuning, 0, {}, kept="last")
    store = Store(search.directory)
    reference = load_reference(search.study, store, dataset, method)
    store.tidy()
    return reference


def _trials(search: Search, trial_store: TrialStore) -> optuna.Study:
    """Return the Optuna study of the method, with the pruner that may end trials early."""
    epochs = search.tuning.epochs or int(getattr(search.target.method, "epochs", 1))
    pruner = optuna.pruners.MedianPruner(
        n_startup_trials=STARTUP_TRIALS, n_warmup_steps=-(-epochs // 2)
    )
    return trial_store.trials_of(search.target.name, pruner if search.prune else None)


def _work(
    search: Search, context: TrialContext, trial_store: TrialStore, after: Callable[[], None]
) -> None:
    """Do trials one after the other until none waits."""
    trials = _trials(search, trial_store)
    # one thread, as in every worker process: the results are then the same
    with child_processes.limited_threads(1), trial_store.working():
        while (trial := trial_store.claim(trials, search.seed)) is not None:
            run_trial(context, trials, trial)
            trial_store.write_rows()
            after()


def _work_in_child(search: Search) -> None:
    """Do trials in a child process."""
    trial_store = TrialStore(search.directory, search.storage, search.study.name)
    dataset = budgeted(load_study_dataset(search.study), search.tuning)
    _work(search, make_trial_context(search, dataset), trial_store, lambda: None)
    trial_store.close()


def _work_in_processes(
    search: Search, trial_store: TrialStore, workers: int, notify: "TrialNotifier"
) -> None:
    """Do trials in child processes; new ones do the trial of a process that died."""
    trials = _trials(search, trial_store)
    while waiting := trial_store.waiting(trials):
        _watch(
            [
                child_processes.start_process(_work_in_child, search)
                for _ in range(min(workers, waiting))
            ],
            notify,
        )
        trial_store.requeue_lost(trials)
        trial_store.write_rows()
        if trial_store.waiting(trials) == waiting:
            raise UserError(
                "all workers ended before they finished a trial: see their messages above."
            )


def _watch(processes: list[BaseProcess], notify: "TrialNotifier") -> None:
    """Wait for processes and report the trials that end; terminate the processes on any error."""
    with child_processes.terminating(processes):
        while any(process.is_alive() for process in processes):
            time.sleep(WORKER_POLL_SECONDS)
            notify()


class TrialNotifier:
    """Reports each trial that has ended since the last call."""

    def __init__(self, trial_store: TrialStore, method: str, on_trial: TrialCallback) -> None:
        self.trial_store, self.method, self.on_trial = trial_store, method, on_trial
        self.known = len(trial_store.ended(method))

    def __call__(self) -> None:
        rows = self.trial_store.ended(self.method)
        for row in rows[self.known :]:
            self.on_trial(row)
        self.known = len(rows)
