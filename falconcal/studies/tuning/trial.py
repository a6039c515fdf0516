"""One trial: train with the settings of a point, judge on validation data, store the outcome."""

import dataclasses
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import polars
from optuna.trial import Trial, TrialState
from torch import nn

from falconcal.core.method import Method, with_seed
from falconcal.core.settings import renamed_settings
from falconcal.core.trust import PERSON, Trust
from falconcal.data import PREDICTION_BATCH_SIZE, Dataset
from falconcal.evaluation.under_shift import CLEAN, evaluate
from falconcal.io.output_folder import file_name
from falconcal.io.trial_rows import TrialRow
from falconcal.methods import make_method, plain_settings
from falconcal.recalibration import Calibrator
from falconcal.studies import Study
from falconcal.studies.building import train_method
from falconcal.studies.run_files import save_weights
from falconcal.studies.tuning.budget import Tuning
from falconcal.studies.tuning.left_out import left_out_criterion
from falconcal.studies.tuning.spaces import Point, Space, study_point
from falconcal.studies.tuning.target import TuningTarget
from falconcal.studies.tuning.trial_store import store_outcome, trial_number
from falconcal.training import CollapseWarning, EpochRecord, on_epoch
from falconcal.training.criterion import (
    CriterionResult,
    Requirements,
    ShiftedValidation,
    validation_criterion,
)


@dataclass(frozen=True, eq=False)
class TrialContext:
    """What all trials of a method share."""

    study: Study
    target: TuningTarget
    space: Space
    tuning: Tuning
    seed: int
    dataset: Dataset  # with the examples that the budget allows
    validation: ShiftedValidation
    weights: Path  # the folder in which complete trials keep theirs
    base: nn.Module | None = None  # what a calibrator that is tuned itself calibrates
    also_score_test: bool = False

    def point(self, trial: Trial) -> Point:
        own = study_point(self.target, self.space)
        return {name: values.suggest(trial, name, own[name]) for name, values in self.space.items()}

    def method(self, point: Point) -> Method:
        """Return the method with the settings of a point and the budget of a trial."""
        return trial_method(
            self.target.method, self.tuning, self.seed, point, trust=self.study.trust
        )


def trial_method(
    method: Method,
    tuning: Tuning,
    seed: int,
    point: Point,
    kept: str = "best",
    trust: Trust = PERSON,
) -> Method:
    """Return a method with the settings of a point, the budget and the seed of a trial."""
    values = plain_settings(method)
    values |= renamed_settings(values, point)
    budget = {
        "epochs": tuning.epochs or values.get("epochs"),
        "samples": tuning.samples or values.get("samples"),
        "keep": kept,
    }
    if kept == "last":
        budget["patience"] = None  # it would choose an epoch too
    values.update({name: value for name, value in budget.items() if name in values})
    return with_seed(make_method(values, trust), seed)


def run_trial(context: TrialContext, trials: optuna.Study, trial: Trial) -> None:
    """Do a trial and report its end to Optuna; an error is stored as the reason of its failure."""
    point, required = context.point(trial), context.validation.required
    pruning = PruningCallback(trial, required)
    started, busy = time.perf_counter(), time.process_time()
    state, value, found = TrialState.COMPLETE, None, dict[str, Any]()
    try:
        found, model = _train_and_judge(context, point, pruning)
        if context.tuning.keep_weights:
            save_weights(weights_file(context, trial), model)
        value = penalised_criterion(found, required)
    except optuna.TrialPruned as pruned:
        state, found = TrialState.PRUNED, {**pruning.last(), "reason": str(pruned)}
    except Exception as error:  # a user's method may raise anything; other trials go on
        state, found = TrialState.FAIL, {"reason": f"{type(error).__name__}: {error}"}
    seconds = {
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - busy, 3),
    }
    fixed = {"settings": point, "seed": context.seed, **_limits(required)}
    store_outcome(trial, {**fixed, **found, **seconds})
    trials.tell(trial, value, state)


def _limits(required: Requirements) -> dict[str, float]:
    """Return what a trial must reach, as its row shows it."""
    limits = {"required_accuracy": required.accuracy}
    if math.isfinite(required.clean_ece):
        limits["allowed_clean_ece"] = required.clean_ece
    return limits


def penalised_criterion(found: Mapping[str, float], required: Requirements) -> float:
    """Return the criterion, or a larger number than any criterion where a requirement is missed.

    So trials that are accurate enough rank before all others, and those by what they lack: a model
    that has learned nothing can be perfectly calibrated.
    """
    result = CriterionResult(
        found["accuracy"], found["criterion"], clean_ece=found.get("clean_ece", 0.0)
    )
    lacking = required.shortfall(result)
    return 1 + lacking if lacking > 0 else result.criterion


class PruningCallback:
    """Reports every judged epoch to Optuna, and ends a trial that is worse than the others."""

    def __init__(self, trial: Trial, required: Requirements) -> None:
        self.trial, self.required = trial, required
        self.records: list[EpochRecord] = []

    def __call__(self, record: EpochRecord) -> None:
        self.records.append(record)
        judged = record.validation
        if not judged:
            return
        value = penalised_criterion(judged, self.required)
        self.trial.report(value, record.epoch)
        if record.epoch < record.epochs and self.trial.should_prune():
            raise optuna.TrialPruned(
                f"behind the median of the other trials after epoch {record.epoch}"
            )

    def last(self) -> TrialRow:
        """Return the results of the last epoch that was judged."""
        judged = [record for record in self.records if record.validation]
        return {"epoch": judged[-1].epoch, **judged[-1].validation} if judged else {}

    def kept(self) -> int | None:
        return self.records[-1].kept if self.records else None


def weights_file(context: TrialContext, trial: Trial) -> Path:
    """Return where a trial keeps its weights."""
    return (
        context.weights
        / file_name(context.target.name)
        / f"trial-{trial_number(trial)}.safetensors"
    )


def _train_and_judge(
    context: TrialContext, point: Point, pruning: PruningCallback
) -> tuple[TrialRow, nn.Module]:
    """Train and judge on validation data; only then score on test data, if that is wanted."""
    method = context.method(point)
    with on_epoch(pruning), _expecting_collapse():
        if context.base is not None and isinstance(method, Calibrator):
            model, judgement = _calibrate_and_judge(context, method, context.base)
        else:
            model = train_method(
                context.study, context.dataset, context.seed, method, context.validation
            )
            judgement = validation_criterion(model, context.validation)
    found: dict[str, Any] = {
        "criterion": judgement.criterion,
        "families": dict(judgement.families),
        "accuracy": judgement.accuracy,
        "clean_ece": judgement.clean_ece,
        "epoch": pruning.kept(),
    }
    if context.also_score_test:
        found["test"] = test_metrics(model, context)
    return found, model


def _calibrate_and_judge(
    context: TrialContext, method: Calibrator, base: nn.Module
) -> tuple[nn.Module, CriterionResult]:
    """Return the base, calibrated on nothing that the study tests, and the criterion."""
    tested = method.ladder.tested_families((*context.study.shifts, *context.study.outliers))
    calibrator = dataclasses.replace(method, base=None, leave_out=(*method.leave_out, *tested))
    train = context.dataset.train.batches(PREDICTION_BATCH_SIZE)
    judgement = left_out_criterion(calibrator, base, train, context.validation)
    return calibrator.fit(base, train, context.validation), judgement


@contextmanager
def _expecting_collapse() -> Iterator[None]:
    """Silence the warning on collapsed training: here the accuracy of the trial shows it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        yield


def test_metrics(model: nn.Module, context: TrialContext) -> dict[str, float]:
    """Return accuracy and ECE on clean test data, and mean micro and macro ECE over the shifts."""
    rows = evaluate(model, context.dataset.test, context.study.find_shifts(context.study.shifts))
    clean = rows.filter(polars.col("shift") == CLEAN)
    figures = {name: clean.filter(metric=name)["value"].item() for name in ("accuracy", "ece")}
    for name in ("micro_ece", "macro_ece"):
        values = rows.filter(metric=name)["value"].to_list()
        figures[name] = sum(values) / len(values)
    return figures
