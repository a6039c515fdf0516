"""Choosing by validation data alone: one number for settings, and the same number for the epoch.

The criterion is the mean over families of the mean ECE over a family's levels. Families are the
clean validation data, FGSM at the ten epsilons, and shifts that the study does not test. It counts
only where validation accuracy is within ``ACCURACY_SLACK`` of the reference: a model that knows
nothing is perfectly calibrated.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.data import Batches, Examples
from falconcal.errors import UserError
from falconcal.metrics import accuracy, expected_calibration_error
from falconcal.predictions import predict
from falconcal.shifts import Shift
from falconcal.shifts.adversarial import EPSILONS, fgsm

ACCURACY_SLACK = 0.01
JUDGEMENTS = 10  # epochs that are judged in a training, evenly spread, the last among them


@dataclass(frozen=True)
class Judgement:
    """Validation accuracy, and the criterion: the lower the better."""

    accuracy: float
    criterion: float
    families: Mapping[str, float] = field(default_factory=dict)  # mean ECE over its levels


@dataclass(frozen=True, eq=False)
class ShiftedValidation:
    """Validation data with its families made once, so that every method meets the same images.

    It walks like the clean validation data, so it can stand wherever that does.
    """

    clean: Examples
    families: Mapping[str, tuple[Tensor, ...]]  # name -> inputs (N, ...) of each level
    required_accuracy: float = 0.0

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self.clean.classes

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.clean.batches(500))


def shifted_validation(
    clean: Examples, reference: nn.Module, shifts: Iterable[Shift]
) -> ShiftedValidation:
    """Make the families: FGSM against a fixed reference model, and the given shifts."""
    attacked = tuple(
        fgsm(reference, clean.inputs, clean.labels, epsilon, clean.bounds) for epsilon in EPSILONS
    )
    families = {"clean": (clean.inputs,), "fgsm": attacked}
    for shift in shifts:
        families[shift.name] = tuple(shift.at(clean.inputs, level) for level in shift.levels[1:])
    required = accuracy(predict(reference, clean)) - ACCURACY_SLACK
    return ShiftedValidation(clean, families, required)


def judge(model: nn.Module, validation: Batches) -> Judgement:
    """Return the criterion; plain validation data is taken clean and under the model's own FGSM."""
    if not isinstance(validation, ShiftedValidation):
        validation = shifted_validation(_in_memory(validation), model, ())
    errors, clean = {}, validation.clean
    for name, levels in validation.families.items():
        predictions = predict(model, clean.repeated(torch.cat(levels)))
        scores = predictions.scores().split(len(clean))
        errors[name] = sum(map(expected_calibration_error, scores)) / len(scores)
        if name == "clean":
            right = accuracy(scores[0])
    return Judgement(right, sum(errors.values()) / len(errors), errors)


class EpochKeeper:
    """Holds the best epoch so far: the lowest criterion among epochs that are accurate enough.

    Enough is within the slack of the best accuracy seen, or of the reference's. While no epoch is,
    the most accurate one is held.
    """

    def __init__(self, validation: Batches, epochs: int) -> None:
        self.validation = validation
        self.judged = {-(-epochs * part // JUDGEMENTS) for part in range(1, JUDGEMENTS + 1)}
        self.required = getattr(validation, "required_accuracy", 0.0)
        self.epoch = 0
        self.kept: Judgement | None = None
        self.weights: dict[str, Any] = {}

    def judge(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """Judge the model after an epoch, keep it if it is better, and return the figures."""
        if epoch not in self.judged:
            return {}
        judgement = judge(model, self.validation)
        self.required = max(self.required, judgement.accuracy - ACCURACY_SLACK)
        if self.kept is None or self._better(judgement, self.kept):
            self.kept, self.epoch = judgement, epoch
            self.weights = copy.deepcopy(model.state_dict())
        return {"accuracy": judgement.accuracy, "criterion": judgement.criterion}

    def restore(self, model: nn.Module) -> None:
        model.load_state_dict(self.weights)

    def _better(self, new: Judgement, old: Judgement) -> bool:
        enough, was_enough = new.accuracy >= self.required, old.accuracy >= self.required
        if enough and was_enough:
            return new.criterion < old.criterion
        return new.accuracy > old.accuracy


def _in_memory(validation: Batches) -> Examples:
    parts = list(validation)
    if not parts:
        raise UserError("expected validation data to choose an epoch by, got an empty loader.")
    inputs, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    bounds, classes = getattr(validation, "bounds", None), getattr(validation, "classes", None)
    return Examples(inputs, labels, bounds, classes)
