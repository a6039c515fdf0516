"""The search: reference, plan, workers, and what is chosen in the end."""

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
from falconcal.core.settings import as_dict
from falconcal.data import Dataset
from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import DEFAULT_VARIANT
from falconcal.io.trial_rows import TrialRow
from falconcal.studies import Study
from falconcal.studies.building import load_study_dataset
from falconcal.studies.reference import load_reference
from falconcal.studies.store import Store
from falconcal.studies.study import REFERENCE
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
from falconcal.training.selection import shifted_validation

STARTUP = 4  # trials that end before any is pruned
POLL = 1.0  # seconds between looks at what the workers have done
TrialCallback = Callable[[TrialRow], None]


@dataclass(frozen=True)
class Search:
    """What is searched, where it is kept, and how."""

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
    def place(self) -> TuningTarget:
        return find_target(self.study, self.method)

    @property
    def space(self) -> Space:
        return find_space(self.study, self.place)

    def plan(self) -> Iterator[Point]:
        """Give the points of the trials; where Optuna samples, an empty one for each it chooses."""
        planned = points(self.space, study_point(self.place, self.space), self.seed)
        if self.tuning.sampler == "random":
            return islice(planned, self.trials)
        return islice((*islice(planned, 1), *repeat({}, self.trials)), self.trials)

    def identity(self) -> dict[str, Any]:
        """Return what all trials of a folder share."""
        places = {find_target(self.study, name).name for name in self.study.methods}
        spaces = {name: find_space(self.study, find_target(self.study, name)) for name in places}
        # a trial judges by its budget's examples
        study = replace(self.study.variant(DEFAULT_VARIANT), selection_examples=None)
        return {
            **study.resolved(),
            "tuning": {**as_dict(self.tuning), "seed": self.seed},
            "search": {
                name: {setting: values.plain() for setting, values in space.items()}
                for name, space in sorted(spaces.items())
            },
        }


def tune(search: Search, workers: int = 1, told: TrialCallback = lambda _: None) -> list[TrialRow]:
    """Do what is left of the trials, write the best settings, and return the rows of all trials.

    ``told`` is called with the row of every trial of the method that ends meanwhile.
    """
    check(search, workers)
    store = Store(search.directory)
    store.check(search.identity())  # before anything is written, and again when it is held
    dataset = budgeted(load_study_dataset(search.study), search.tuning)
    with child_processes.limited_threads(1), store.opened(search.identity(), wait=-1):
        bench = make_bench(search, dataset)
        ledger = TrialStore(search.directory, search.storage, search.study.name)
        trials = _trials(search, ledger)
        ledger.plan_again(trials)
        ledger.plan(trials, search.plan())
    news = TrialNotifier(ledger, search.place.name, told)
    try:
        if workers == 1:
            _work(search, bench, ledger, news)
        else:
            del bench  # each worker makes its own
            _work_in_processes(search, ledger, workers, news)
        return _conclude(search, ledger)
    finally:
        ledger.close()


def _conclude(search: Search, ledger: TrialStore) -> list[TrialRow]:
    """Write down all trials, and of every method the best one."""
    with ledger.lock:  # another command may end at the same time with fewer
        ledger.write_rows()
        rows = ledger.rows()
        # the study may have lost a method since: its trials stay, but nothing could take its best
        known = [row for row in rows if row["method"] in search.study.methods]
        places = {row["method"]: find_target(search.study, row["method"]) for row in known}
        write_best(search.directory, search.study.name, known, places)
    return rows


def check(search: Search, workers: int) -> None:
    """Refuse what cannot be searched before anything is made."""
    if search.trials < 1 or workers < 1 or search.seed < 0:
        raise UsageError(
            f"expected at least 1 trial, 1 worker and a seed from 0 on, got {search.trials}, "
            f"{workers} and {search.seed}."
        )
    if REFERENCE not in search.study.methods:
        raise UsageError(
            f"tuning needs the method {REFERENCE} in the study, whose model perturbs the "
            "validation data for all methods alike."
        )
    _ = search.tuning, search.space
    check_search(search.study)
    check_storage(search.storage)


def make_bench(search: Search, dataset: Dataset) -> TrialContext:
    """Return what trials share; the reference model is trained once a folder, and kept there."""
    study = search.study
    reference = _reference(search, dataset)
    shifts = study.found(study.selection_shifts)
    validation = shifted_validation(dataset.validation, reference, shifts)
    return TrialContext(
        study=study,
        place=search.place,
        space=search.space,
        tuning=search.tuning,
        seed=search.seed,
        dataset=dataset,
        validation=validation,
        also_score_test=search.also_score_test,
    )


def _reference(search: Search, dataset: Dataset) -> nn.Module:
    """Return the study's dropout model of seed 0, its last epoch, under the budget of a trial."""
    method = trial_method(search.study.method(REFERENCE), search.tuning, 0, {}, kept="last")
    store = Store(search.directory)
    reference = load_reference(search.study, store, dataset, method)
    store.tidy()
    return reference


def _trials(search: Search, ledger: TrialStore) -> optuna.Study:
    """Return the Optuna study of the method, with what decides on a trial's early end."""
    epochs = search.tuning.epochs or int(getattr(search.place.method, "epochs", 1))
    pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=-(-epochs // 2))
    return ledger.trials_of(search.place.name, pruner if search.prune else None)


def _work(
    search: Search, bench: TrialContext, ledger: TrialStore, after: Callable[[], None]
) -> None:
    """Do trials one after another until none waits."""
    trials = _trials(search, ledger)
    # one thread, as every worker has: the figures are then the same
    with child_processes.limited_threads(1), ledger.working():
        while (trial := ledger.claim(trials, search.seed)) is not None:
            run_trial(bench, trials, trial)
            ledger.write_rows()
            after()


def _work_elsewhere(search: Search) -> None:
    """Do trials in a process of its own."""
    ledger = TrialStore(search.directory, search.storage, search.study.name)
    dataset = budgeted(load_study_dataset(search.study), search.tuning)
    _work(search, make_bench(search, dataset), ledger, lambda: None)
    ledger.close()


def _work_in_processes(
    search: Search, ledger: TrialStore, workers: int, news: "TrialNotifier"
) -> None:
    """Do trials in processes; what one leaves that dies is taken up by new ones."""
    trials = _trials(search, ledger)
    while waiting := ledger.waiting(trials):
        _watch(
            [
                child_processes.start_process(_work_elsewhere, search)
                for _ in range(min(workers, waiting))
            ],
            news,
        )
        ledger.plan_again(trials)
        ledger.write_rows()
        if ledger.waiting(trials) == waiting:
            raise UserError("every worker ended before a trial did: see their messages above.")


def _watch(processes: list[BaseProcess], news: "TrialNotifier") -> None:
    """Wait for processes and pass on what they do; whatever happens here, none is left behind."""
    with child_processes.terminating(processes):
        while any(process.is_alive() for process in processes):
            time.sleep(POLL)
            news()


class TrialNotifier:
    """Tells of every trial that ended since it was last asked."""

    def __init__(self, ledger: TrialStore, method: str, told: TrialCallback) -> None:
        self.ledger, self.method, self.told = ledger, method, told
        self.known = len(ledger.ended(method))

    def __call__(self) -> None:
        rows = self.ledger.ended(self.method)
        for row in rows[self.known :]:
            self.told(row)
        self.known = len(rows)
