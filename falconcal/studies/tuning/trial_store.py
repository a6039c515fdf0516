"""The trials of a search, in Optuna's storage, which any number of workers share.

Trials are planned beforehand, each with its own number. A worker claims one that waits, and holds a
lock file for as long as it lives; a trial whose worker has died is marked as killed and planned
again. So no trial is lost or done twice, and N trials are N trials however many workers there are.

Optuna's own heartbeat and retry (tried with 5.0) do not hold that promise: a worker killed before
its first heartbeat leaves its trial running forever, a worker that is suspended for longer than the
grace period has its trial done twice and then fails, and after a kill nothing can go on until the
grace period is over. A lock file is released by the system at once, however the worker ends.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import filelock
import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from falconcal.core.randomness import combined_seed
from falconcal.errors import UsageError, UserError
from falconcal.io.atomic import write_text
from falconcal.io.trial_rows import TrialRow
from falconcal.studies.tuning.spaces import optuna_value

SQLITE_WAIT_SECONDS = 60  # for a write of another process
TRIAL_STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class TrialStore:
    """The trials of a study's methods: a storage, and the output folder that it belongs to."""

    def __init__(self, directory: Path, storage: str | None, study: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.directory, self.study = directory, study
        self.storage = _open(storage or f"sqlite:///{(directory / 'trials.db').resolve()}")
        self.lock = filelock.FileLock(directory / ".claims.lock")
        self.worker = uuid4().hex

    def close(self) -> None:
        self.storage.remove_session()
        self.storage.engine.dispose()

    def trials_of(
        self, method: str, pruner: optuna.pruners.BasePruner | None = None
    ) -> optuna.Study:
        """Return the Optuna study of a method; it is created if it does not exist."""
        study = optuna.create_study(
            storage=self.storage,
            study_name=f"{self.study}/{method}",
            direction="minimize",
            load_if_exists=True,
            pruner=pruner or optuna.pruners.NopPruner(),
        )
        self._check_folder(study)
        return study

    def plan(self, trials: optuna.Study, points: Iterable[dict[str, Any]]) -> None:
        """Plan the points that are not planned yet; the position of a point is its number."""
        planned = {trial_number(trial) for trial in trials.get_trials(deepcopy=False)}
        for number, point in enumerate(points):
            if number not in planned:
                stored = {name: optuna_value(value) for name, value in point.items()}
                trials.enqueue_trial(stored, user_attrs={"number": number})

    def waiting(self, trials: optuna.Study) -> int:
        """Return how many trials no worker has claimed yet."""
        return len(trials.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def claim(self, trials: optuna.Study, seed: int) -> Trial | None:
        """Return the first trial that waits, which no other process then gets; None if all are."""
        with self.lock:
            waiting = trials.get_trials(deepcopy=False, states=(TrialState.WAITING,))
            if not waiting:
                return None
            first = min(waiting, key=trial_number)
            self.storage.set_trial_user_attr(first._trial_id, "worker", self.worker)
            self.storage.set_trial_state_values(first._trial_id, TrialState.RUNNING)
        # a point that Optuna draws depends on the seed and the number, not on the worker
        trials.sampler = optuna.samplers.TPESampler(
            seed=combined_seed(seed, trial_number(first)) % 2**32
        )
        return Trial(trials, first._trial_id)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold this worker's lock file; the system releases it however the process ends."""
        path = self._worker_lock(self.worker)
        path.parent.mkdir(exist_ok=True)
        with filelock.FileLock(path):
            yield
        path.unlink(missing_ok=True)

    def requeue_lost(self, trials: optuna.Study) -> int:
        """Mark the trials of dead workers as killed, plan them again, and return how many."""
        with self.lock:
            running = trials.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            dead = [trial for trial in running if self._is_dead(trial.user_attrs["worker"])]
            for trial in dead:
                self.storage.set_trial_user_attr(trial._trial_id, "killed", True)
                self.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
                trials.enqueue_trial(_planned(trial), user_attrs={"number": trial_number(trial)})
        return len(dead)

    def ended(self, method: str) -> list[TrialRow]:
        """Return the trials of a method that have ended, in the order in which they did."""
        trials = optuna.load_study(study_name=f"{self.study}/{method}", storage=self.storage)
        ended = trials.get_trials(deepcopy=False, states=tuple(TRIAL_STATES))
        ended.sort(key=lambda trial: trial.datetime_complete or datetime.max)
        return [_row(self.study, method, trial) for trial in ended]

    def rows(self) -> list[TrialRow]:
        """Return every trial that has ended, by method and number."""
        names = [name.rpartition("/") for name in optuna.get_all_study_names(self.storage)]
        methods = sorted(method for study, _, method in names if study == self.study)
        return [
            row
            for method in methods
            for row in sorted(self.ended(method), key=lambda row: int(row["trial"]))
        ]

    def write_rows(self) -> None:
        """Write trials.jsonl, each time with all trials of the storage, so that none is missing."""
        with self.lock:
            lines = [json.dumps(row) + "\n" for row in self.rows()]
            write_text(self.directory / "trials.jsonl", "".join(lines))

    def _check_folder(self, trials: optuna.Study) -> None:
        """Refuse trials of another folder: its data may differ, its locks are unseen."""
        file = self.directory / ".ledger"
        if not file.exists():
            write_text(file, uuid4().hex)
        here = file.read_text()
        if trials.user_attrs.get("folder") != here and trials.get_trials(deepcopy=False):
            raise UserError(
                f"the storage holds trials of {trials.study_name} made in another output folder: "
                "give that folder with --out, or choose another --storage."
            )
        trials.set_user_attr("folder", here)

    def _worker_lock(self, worker: str) -> Path:
        return self.directory / ".workers" / worker

    def _is_dead(self, worker: str) -> bool:
        """Return whether no process holds a worker's lock any more."""
        path = self._worker_lock(worker)
        # a storage from elsewhere may hold any text here, also the path of another file
        if not re.fullmatch("[0-9a-f]{32}", worker) or not path.exists():
            return True
        try:
            with filelock.FileLock(path, timeout=0):
                path.unlink(missing_ok=True)
        except filelock.Timeout:
            return False
        return True


def trial_number(trial: FrozenTrial | Trial) -> int:
    """Return a trial's number in the plan; one that is done again keeps its number."""
    return int(trial.user_attrs["number"])


def store_outcome(trial: Trial, outcome: TrialRow) -> None:
    """Store the results of a trial beside its state."""
    trial.set_user_attr("outcome", outcome)


def _planned(trial: FrozenTrial) -> dict[str, Any]:
    """Return the point of a trial: as planned, or as far as the sampler had chosen it."""
    fixed: dict[str, Any] = trial.system_attrs.get("fixed_params", {})
    return {**fixed, **trial.params}


def _row(study: str, method: str, trial: FrozenTrial) -> TrialRow:
    killed = trial.user_attrs.get("killed", False)
    row = {
        "study": study,
        "method": method,
        "trial": trial_number(trial),
        "state": "killed" if killed else TRIAL_STATES[trial.state],
    }
    if killed:
        return {**row, "reason": "its process was killed; the trial was planned again"}
    return {**row, **trial.user_attrs.get("outcome", {})}


def check_storage(url: str | None) -> None:
    """Refuse text that is not the URL of a database, before anything is trained."""
    if url is not None:
        with _opening(url):
            sqlalchemy.make_url(url).get_dialect()


def _open(url: str) -> RDBStorage:
    arguments = (
        {"connect_args": {"timeout": SQLITE_WAIT_SECONDS}} if url.startswith("sqlite") else {}
    )
    with _opening(url):
        return RDBStorage(url, engine_kwargs=arguments)


@contextmanager
def _opening(url: str) -> Iterator[None]:
    try:
        yield
    except (ImportError, sqlalchemy.exc.SQLAlchemyError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"cannot open the storage {url}: {reason}. Expected a URL such as "
            "sqlite:///trials.db or postgresql://user@host/name."
        ) from None
