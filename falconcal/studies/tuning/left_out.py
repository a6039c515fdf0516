"""The criterion of a calibrator: every family is judged by fits that have not seen it.

A calibrator that is fitted on a family looks good under it, whatever it does elsewhere. So it is
fitted once per family of the criterion without that family, on half of the validation examples, and
judged under the family on the other half; then the halves are exchanged.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from falconcal.core.batch import Batches
from falconcal.data import PREDICTION_BATCH_SIZE, Examples
from falconcal.metrics import Predictions, Scores
from falconcal.models.predict import predict
from falconcal.recalibration import Calibrator
from falconcal.training.criterion import CriterionResult, ShiftedValidation, criterion_result


def left_out_criterion(
    calibrator: Calibrator, model: nn.Module, train: Batches, validation: ShiftedValidation
) -> CriterionResult:
    """Return the criterion of a calibrator for a trained model; lower is better."""
    results = [
        _family_result(calibrator, model, train, validation, family)
        for family in validation.families
    ]
    families = {name: error for result in results for name, error in result.families.items()}
    return CriterionResult(
        accuracy=min(result.accuracy for result in results),
        criterion=sum(families.values()) / len(families),
        families=families,
        clean_ece=sum(result.clean_ece for result in results) / len(results),
    )


def _family_result(
    calibrator: Calibrator,
    model: nn.Module,
    train: Batches,
    validation: ShiftedValidation,
    family: str,
) -> CriterionResult:
    """Return the criterion over one family, by fits without it."""
    unseen = dataclasses.replace(calibrator, leave_out=(*calibrator.leave_out, family))
    levels = (validation.clean.inputs, *validation.families[family])
    halves = [
        _half_predictions(unseen, model, train, validation.clean, levels, half) for half in (0, 1)
    ]
    clean, *shifted = (_joined(both) for both in zip(*halves, strict=True))
    return criterion_result(validation.criterion, clean, {family: shifted})


def _half_predictions(
    calibrator: Calibrator,
    model: nn.Module,
    train: Batches,
    clean: Examples,
    levels: Sequence[Tensor],
    half: int,
) -> list[Predictions]:
    """Return the predictions on every second example at each level, fitted on the others."""
    others = _every_second(clean, clean.inputs, 1 - half)
    fitted = calibrator.fit(model, train, others.batches(PREDICTION_BATCH_SIZE))
    return [
        predict(fitted, _every_second(clean, inputs, half), single_process=True)
        for inputs in levels
    ]


def _every_second(clean: Examples, inputs: Tensor, first: int) -> Examples:
    return dataclasses.replace(clean, inputs=inputs[first::2], labels=clean.labels[first::2])


def _joined(halves: Sequence[Predictions]) -> Scores:
    log_probs = torch.cat([half.log_probs for half in halves])
    return Predictions(log_probs, torch.cat([half.labels for half in halves])).scores()
