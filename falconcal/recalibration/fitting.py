"""Fit a calibrator on the copies of a ladder, with features of the examples where they count."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from falconcal.core.batch import Batches, checked_batches
from falconcal.core.model_inputs import Inputs
from falconcal.data import PREDICTION_BATCH_SIZE, Examples, Part
from falconcal.errors import UserError
from falconcal.metrics import Predictions, accuracy, expected_calibration_error
from falconcal.models.predict import check_logits
from falconcal.recalibration.calibrated_model import (
    CalibratedModel,
    FittedCalibrator,
    calibration_beside,
    floored_log_probs,
)
from falconcal.recalibration.fit_record import CopyRecord, FitRecord, LeftOutRecord
from falconcal.recalibration.held_examples import held_examples
from falconcal.recalibration.ladder import DRIFTED_COPY, Copy, input_form
from falconcal.recalibration.neighbours import Neighbours, observed
from falconcal.recalibration.stages import LOGITS
from falconcal.recalibration.unit_range import find_unit_range

if TYPE_CHECKING:
    from falconcal.recalibration.calibrator import Calibrator

logger = logging.getLogger("falconcal.recalibration")
FOLDS = 4
ALWAYS_FITTED = ("clean", DRIFTED_COPY)  # copies that no fit leaves out as a family
FEWEST_PER_FOLD = 20  # examples per fold below which left-out families are not judged


@dataclass(frozen=True, eq=False)
class FitSample:
    """All copies in one: what the model says of each example, its weight and its features."""

    log_probs: Tensor  # (N, C) float64
    labels: Tensor  # (N,)
    weights: Tensor  # (N,), of sum 1
    copies: Tensor  # (N,) the number of the copy
    examples: Tensor  # (N,) the number of the example in its copy
    features: Tensor | None  # (N, F) float64

    def part(self, which: Tensor) -> "FitSample":
        """Return some of the rows, their weights scaled to sum to 1."""
        weights = self.weights[which]
        return FitSample(
            self.log_probs[which],
            self.labels[which],
            weights / weights.sum(),
            self.copies[which],
            self.examples[which],
            None if self.features is None else self.features[which],
        )


def fit_on_copies(
    calibrator: "Calibrator",
    model: nn.Module,
    train: Batches | None,
    validation: Batches,
    drifted: Batches | Part | None = None,
) -> CalibratedModel:
    """Return the model with a calibration that was fitted on all copies of the ladder."""
    home, clean = _home_and_clean(calibrator, model, train, validation)
    scale = None
    if input_form(clean.inputs) == "image" and not calibrator.ladder.is_clean_alone:
        scale = find_unit_range(validation, calibrator.bounds, calibrator.normalisation)
    observer = calibrator.observer(model, home)
    classes = _classes(model, clean.inputs)
    sampled = None if drifted is None else _drifted_sample(calibrator, drifted, clean, classes)
    copies = calibrator.ladder.copies(model, clean, classes, scale, sampled)
    sample = gather(model, observer, copies)
    fitted = learned(calibrator, sample, observer)
    calibrated = CalibratedModel(model, calibration_beside(model, fitted), observer).eval()
    calibrated.fit_record = record(calibrator, sample, observer, fitted, copies)
    logger.info("fitted %s\n%s", type(calibrator).__name__, calibrated.fit_record)
    return calibrated


def _home_and_clean(
    calibrator: "Calibrator", model: nn.Module, train: Batches | None, validation: Batches
) -> tuple[Examples, Examples]:
    """Return the examples that are stored and those that are fitted on, never the same ones."""
    stored: int = getattr(calibrator, "stored", 0)
    seed: int = getattr(calibrator, "seed", 0)
    classes = _classes(model, _first_inputs(validation))
    if not calibrator.observes or train is not None:
        clean = held_examples(validation, calibrator.fit_examples, seed, classes)
        home = clean
        if calibrator.observes and train is not None:
            home = held_examples(train, stored, seed, classes, per_class=True)
    else:
        both = held_examples(validation, calibrator.fit_examples + stored, seed, classes)
        half = max(len(both) // 2, len(both) - calibrator.fit_examples)
        home = both.head(min(half, stored))
        clean = replace(both, inputs=both.inputs[half:], labels=both.labels[half:])
    check_fit_labels(clean.labels)
    return home, clean


def _drifted_sample(
    calibrator: "Calibrator", drifted: Batches | Part, clean: Examples, classes: int
) -> Examples:
    """Return the drifted examples that are fitted on; refuse those that are not like the others."""
    seed: int = getattr(calibrator, "seed", 0)
    most = calibrator.drifted_examples or calibrator.fit_examples
    sampled = held_examples(drifted, most, seed, classes)
    if (sampled.labels < 0).any() or sampled.shape != clean.shape:
        raise UserError(
            f"expected drifted examples of shape {clean.shape}, each with its true class, got "
            f"shape {sampled.shape} and {int((sampled.labels < 0).sum())} labels of -1."
        )
    return sampled


def _first_inputs(batches: Batches) -> Inputs:
    first = next(checked_batches(batches), None)
    if first is None:
        raise UserError("expected at least one batch, got none: is the loader empty?")
    return first[0]


def _classes(model: nn.Module, inputs: Inputs) -> int:
    logits, _ = observed(model, inputs[:2], (LOGITS,))
    check_logits(logits, len(inputs[:2]), None)
    return logits.shape[1]


def gather(model: nn.Module, observer: Neighbours | None, copies: list[Copy]) -> FitSample:
    """Run the model on all copies; features are standardised by the clean one."""
    parts = [_rows(model, observer, number, copy) for number, copy in enumerate(copies)]
    log_probs, labels, weights, numbers, examples, features = (
        torch.cat(column) for column in zip(*parts, strict=True)
    )
    if observer is None:
        return FitSample(log_probs, labels, weights, numbers, examples, None)
    observer.standardise(features[numbers == 0])
    scaled = observer.standardised(features)
    return FitSample(log_probs, labels, weights, numbers, examples, scaled)


def _rows(
    model: nn.Module, observer: Neighbours | None, number: int, copy: Copy
) -> tuple[Tensor, ...]:
    examples = copy.examples
    passes = list(_passes(model, observer, examples))
    logits, features = (torch.cat(column) for column in zip(*passes, strict=True))
    count = len(logits)
    log_probs = floored_log_probs(logits.double().cpu())
    weights = torch.full((count,), copy.weight / count, dtype=torch.float64)
    numbers = torch.full((count,), number)
    return log_probs, examples.labels, weights, numbers, torch.arange(count), features.cpu()


def _passes(
    model: nn.Module, observer: Neighbours | None, examples: Examples
) -> Iterator[tuple[Tensor, Tensor]]:
    stages = (LOGITS,) if observer is None else observer.layout.stages
    for inputs, _ in examples.batches(PREDICTION_BATCH_SIZE):
        logits, outputs = observed(model, inputs, stages)
        empty = logits.new_zeros(len(logits), 0).double()
        if observer is not None:
            empty = observer.features_of_pass(logits, outputs)
        yield logits, empty


def learned(
    calibrator: "Calibrator", sample: FitSample, observer: Neighbours | None
) -> FittedCalibrator:
    """Return the calibration that a sample asks for, on the CPU."""
    extra = {} if observer is None else {"features": sample.features, "rising": observer.rising}
    parameters = calibrator.learn(sample.log_probs, sample.labels, sample.weights, **extra)
    return FittedCalibrator(calibrator, parameters)


def record(
    calibrator: "Calibrator",
    sample: FitSample,
    observer: Neighbours | None,
    fitted: FittedCalibrator,
    copies: list[Copy],
) -> FitRecord:
    """Return what the fit did on each copy, and how it does on families that are left out."""
    calibrated = fitted(sample.log_probs, sample.features)
    rows = tuple(
        _copy_record(copy, sample, calibrated, sample.copies == number)
        for number, copy in enumerate(copies)
    )
    left_out = tuple(_left_out(calibrator, sample, observer, copies))
    asked = "" if calibrator.perturbed == "crafted" else ", ".join(calibrator.perturbed)
    skipped = [name for name in calibrator.leave_out if name in asked]
    note = f"Left out of the fit because they are tested: {', '.join(skipped)}." if skipped else ""
    return FitRecord(rows, left_out, note)


def _copy_record(copy: Copy, sample: FitSample, after: Tensor, rows: Tensor) -> CopyRecord:
    labels = sample.labels[rows]
    before, new = Predictions(sample.log_probs[rows], labels), Predictions(after[rows], labels)
    return CopyRecord(
        copy.family,
        copy.level,
        copy.strength,
        accuracy(before),
        float(before.scores().confidence.mean()),
        float(new.scores().confidence.mean()),
        *_errors(sample, after, rows),
    )


def _left_out(
    calibrator: "Calibrator", sample: FitSample, observer: Neighbours | None, copies: list[Copy]
) -> Iterator[LeftOutRecord]:
    """Judge each family by a fit without it and without the examples it is judged on.

    Clean and drifted data are judged by fits without these examples alone.
    """
    every = list(dict.fromkeys(copy.family for copy in copies))
    families = [family for family in every if family not in ALWAYS_FITTED]
    enough = len(families) >= 2 or DRIFTED_COPY in every
    count = int((sample.copies == 0).sum())
    if not calibrator.check_families or not enough or count < FOLDS * FEWEST_PER_FOLD:
        return
    after, judged = _left_out_predictions(calibrator, sample, observer, copies, families)
    for family in every:
        numbers = [number for number, copy in enumerate(copies) if copy.family == family]
        is_outliers = copies[numbers[0]].is_outliers
        errors = [_errors(sample, after, (sample.copies == number) & judged) for number in numbers]
        before, new = (sum(column) / len(errors) for column in zip(*errors, strict=True))
        yield LeftOutRecord(family, before, new, is_outliers)


def _left_out_predictions(
    calibrator: "Calibrator",
    sample: FitSample,
    observer: Neighbours | None,
    copies: list[Copy],
    families: list[str],
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities (N, C) by fits without a row's family, and which rows have them."""
    fold_of = dict.fromkeys(ALWAYS_FITTED, -1) | {
        name: number % FOLDS for number, name in enumerate(families)
    }
    family_fold = torch.tensor([fold_of[copy.family] for copy in copies])[sample.copies]  # (N,)
    example_fold = sample.examples % FOLDS  # (N,)
    after, judged = sample.log_probs.clone(), torch.zeros(len(sample.labels), dtype=torch.bool)
    for fold in range(FOLDS):
        fit = learned(
            calibrator, sample.part((family_fold != fold) & (example_fold != fold)), observer
        )
        which = (example_fold == fold) & ((family_fold == fold) | (family_fold == -1))
        rows = sample.part(which)
        after[which] = fit(rows.log_probs, rows.features)
        judged |= which
    return after, judged


def _errors(sample: FitSample, after: Tensor, rows: Tensor) -> tuple[float, float]:
    """Return the calibration error of some rows before and after."""
    labels = sample.labels[rows]
    pair = (Predictions(sample.log_probs[rows], labels), Predictions(after[rows], labels))
    return expected_calibration_error(pair[0]), expected_calibration_error(pair[1])


def needed(keyword: str, batches: Batches | None) -> Batches:
    """Return batches that must be there; else name the keyword that is missing."""
    if batches is None:
        raise UserError(f"fit needs {keyword}=, batches of (inputs, labels), got None.")
    return batches


def check_fit_labels(labels: Tensor) -> None:
    """Refuse what no calibration can be learned from."""
    if len(labels) == 0:
        raise UserError("expected validation examples to calibrate on, got none.")
    if (labels < 0).any():
        raise UserError(
            "calibration needs the true class of every validation example, got "
            f"{int((labels < 0).sum())} labels of -1: leave these examples out."
        )
    if (labels == labels[0]).all():
        raise UserError(
            f"expected validation examples of at least 2 classes, got class {int(labels[0])} "
            "alone: calibrate on data that holds several."
        )
