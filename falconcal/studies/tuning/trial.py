"""One trial: train with the settings of a point, judge on validation data, keep what was found."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import optuna
import polars
from optuna.trial import Trial, TrialState
from torch import nn

from falconcal.core.method import Method, with_seed
from falconcal.core.settings import renamed_settings
from falconcal.core.trust import PERSON, Trust
from falconcal.data import Dataset
from falconcal.evaluation.under_shift import CLEAN, evaluate
from falconcal.io.trial_rows import TrialRow
from falconcal.methods import make_method, plain_settings
from falconcal.studies import Study
from falconcal.studies.building import train_method
from falconcal.studies.tuning.budget import Tuning
from falconcal.studies.tuning.spaces import Point, Space, study_point
from falconcal.studies.tuning.target import TuningTarget
from falconcal.studies.tuning.trial_store import keep
from falconcal.training import CollapseWarning, EpochRecord, on_epoch
from falconcal.training.selection import ShiftedValidation, validation_criterion


@dataclass(frozen=True, eq=False)
class TrialContext:
    """What every trial of a method shares."""

    study: Study
    place: TuningTarget
    space: Space
    tuning: Tuning
    seed: int
    dataset: Dataset  # cut down to the budget
    validation: ShiftedValidation
    also_score_test: bool = False

    def point(self, trial: Trial) -> Point:
        own = study_point(self.place, self.space)
        return {name: values.suggest(trial, name, own[name]) for name, values in self.space.items()}

    def method(self, point: Point) -> Method:
        """Return the method with a point's settings under the budget of a trial."""
        return trial_method(
            self.place.method, self.tuning, self.seed, point, trust=self.study.trust
        )


def trial_method(
    method: Method,
    tuning: Tuning,
    seed: int,
    point: Point,
    kept: str = "best",
    trust: Trust = PERSON,
) -> Method:
    """Return a method as a trial trains it."""
    values = plain_settings(method)
    values |= renamed_settings(values, point)
    budget = {
        "epochs": tuning.epochs or values.get("epochs"),
        "samples": tuning.samples or values.get("samples"),
        "keep": kept,
    }
    if kept == "last":
        budget["patience"] = None  # which would choose an epoch too
    values.update({name: value for name, value in budget.items() if name in values})
    return with_seed(make_method(values, trust), seed)


def run_trial(bench: TrialContext, trials: optuna.Study, trial: Trial) -> None:
    """Do a trial and tell Optuna how it ended; whatever goes wrong in it is kept as its reason."""
    point = bench.point(trial)
    fixed = {"settings": point, "seed": bench.seed}
    required = bench.validation.required_accuracy
    watcher, started, busy = (
        PruningCallback(trial, required),
        time.perf_counter(),
        time.process_time(),
    )
    state, value, found = TrialState.COMPLETE, None, {}
    try:
        found = _found(bench, point, watcher)
        value = penalised_criterion(found["accuracy"], found["criterion"], required)
    except optuna.TrialPruned as pruned:
        state, found = TrialState.PRUNED, {**watcher.last(), "reason": str(pruned)}
    except Exception as error:  # a method from outside may fail in any way; others go on
        state, found = TrialState.FAIL, {"reason": f"{type(error).__name__}: {error}"}
    seconds = {
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - busy, 3),
    }
    keep(trial, {**fixed, "required_accuracy": required, **found, **seconds})
    trials.tell(trial, value, state)


def penalised_criterion(accuracy: float, criterion: float, required: float) -> float:
    """Return the criterion, or where accuracy is missing more than any criterion can be.

    So whatever is accurate enough comes before whatever is not, and among those the more accurate
    first: a model that knows nothing is perfectly calibrated.
    """
    return criterion if accuracy >= required else 1 + required - accuracy


class PruningCallback:
    """Reports every judged epoch, and stops a trial that others have left behind."""

    def __init__(self, trial: Trial, required: float) -> None:
        self.trial, self.required = trial, required
        self.records: list[EpochRecord] = []

    def __call__(self, record: EpochRecord) -> None:
        self.records.append(record)
        judged = record.validation
        if not judged:
            return
        value = penalised_criterion(judged["accuracy"], judged["criterion"], self.required)
        self.trial.report(value, record.epoch)
        if record.epoch < record.epochs and self.trial.should_prune():
            raise optuna.TrialPruned(
                f"behind the median of the other trials after epoch {record.epoch}"
            )

    def last(self) -> TrialRow:
        """Return the figures of the last epoch that was judged."""
        judged = [record for record in self.records if record.validation]
        return {"epoch": judged[-1].epoch, **judged[-1].validation} if judged else {}

    def kept(self) -> int | None:
        return self.records[-1].kept if self.records else None


def _found(bench: TrialContext, point: Point, watcher: PruningCallback) -> TrialRow:
    """Train and judge, and only then look at test data, if asked to."""
    with on_epoch(watcher), _expecting_collapse():
        model = train_method(
            bench.study, bench.dataset, bench.seed, bench.method(point), bench.validation
        )
    judgement = validation_criterion(model, bench.validation)
    found: dict[str, Any] = {
        "criterion": judgement.criterion,
        "families": dict(judgement.families),
        "accuracy": judgement.accuracy,
        "epoch": watcher.kept(),
    }
    return {**found, "test": tested_figures(model, bench)} if bench.also_score_test else found


@contextmanager
def _expecting_collapse() -> Iterator[None]:
    """A point that ruins training is no accident here: its accuracy says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        yield


def tested_figures(model: nn.Module, bench: TrialContext) -> dict[str, float]:
    """Return accuracy and ECE on clean test data, and the mean ECE over the tested shifts."""
    rows = evaluate(model, bench.dataset.test, bench.study.ladders(bench.study.shifts))
    clean = rows.filter(polars.col("shift") == CLEAN)
    figures = {name: clean.filter(metric=name)["value"].item() for name in ("accuracy", "ece")}
    for name in ("micro_ece", "macro_ece"):
        values = rows.filter(metric=name)["value"].to_list()
        figures[name] = sum(values) / len(values)
    return figures
