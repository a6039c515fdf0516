"""Choosing by validation data alone: one number for settings, and the same number for the epoch.

The criterion is the mean over families of the mean ECE over a family's levels. Families are the
clean validation data, FGSM at the ten epsilons, and shifts that the study does not test. It counts
only where validation accuracy is within ``ACCURACY_SLACK`` of the reference, because a model that
knows nothing is perfectly calibrated.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.batch import checked_batches
from falconcal.core.perturbation_point import input_gradient
from falconcal.data import (
    PREDICTION_BATCH_SIZE,
    Batches,
    Bounds,
    Examples,
    Part,
    sample,
)
from falconcal.metrics import accuracy, expected_calibration_error
from falconcal.models.predict import predict
from falconcal.shifts import Shift, shift_context
from falconcal.shifts.fgsm import EPSILONS, perturb

ACCURACY_SLACK = 0.01
CHECKED_EPOCHS = 10  # epochs whose criterion is computed, evenly spread and with the last


@dataclass(frozen=True)
class CriterionResult:
    """Validation accuracy, and the criterion, of which lower is better."""

    accuracy: float
    criterion: float
    families: Mapping[str, float] = field(default_factory=dict)  # mean ECE over its levels


@dataclass(frozen=True, eq=False)
class ShiftedValidation:
    """Validation data with its families made once, so that every method sees the same images.

    Iterating over it gives all of the clean validation data, so it can be passed as that.
    """

    whole: Part
    clean: Examples  # those that the criterion is computed on
    families: Mapping[str, tuple[Tensor, ...]]  # name -> inputs (N, ...) of each level
    required_accuracy: float = 0.0

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self.whole.classes

    @property
    def bounds(self) -> Bounds | None:
        return self.whole.bounds

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.whole.batches(PREDICTION_BATCH_SIZE))


def shifted_validation(
    data: Part, reference: nn.Module, shifts: Iterable[Shift], examples: int | None = None
) -> ShiftedValidation:
    """Make the families: FGSM against a fixed reference model, and the given shifts.

    ``examples`` is the number of validation examples that they are made of; None takes all. Tokens
    are whole numbers and cannot be moved along a gradient, so they have no family of FGSM.
    """
    clean = sample(data, examples)
    clean = clean.first(len(clean))
    families: dict[str, tuple[Tensor, ...]] = {"clean": (clean.inputs,)}
    if clean.inputs.is_floating_point():
        families["fgsm"] = _attacked(reference, clean)
    metadata = shift_context(clean, 0, clean.labels, reference)
    for shift in shifts:
        families[shift.name] = tuple(
            shift.at(clean.inputs, level, **metadata) for level in shift.levels[1:]
        )
    required = accuracy(predict(reference, clean, single_process=True)) - ACCURACY_SLACK
    return ShiftedValidation(data, clean, families, required)


def _attacked(reference: nn.Module, clean: Examples) -> tuple[Tensor, ...]:
    """Return the inputs under FGSM at every epsilon; one gradient serves all of them."""
    gradients = (input_gradient(reference, *pair) for pair in clean.batches(PREDICTION_BATCH_SIZE))
    direction = torch.cat([gradient.sign() for gradient in gradients])  # (N, ...)
    return tuple(perturb(clean.inputs, direction, epsilon, clean.bounds) for epsilon in EPSILONS)


def validation_criterion(
    model: nn.Module, validation: Batches, bounds: Bounds | None = None
) -> CriterionResult:
    """Return the criterion; plain validation data is taken clean and under the model's own FGSM."""
    if not isinstance(validation, ShiftedValidation):
        validation = shifted_validation(_in_memory(validation, bounds), model, ())
    errors, clean = {}, validation.clean
    for name, levels in validation.families.items():
        predictions = predict(model, clean.repeated(torch.cat(levels)), single_process=True)
        scores = predictions.scores().split(len(clean))
        errors[name] = sum(map(expected_calibration_error, scores)) / len(scores)
        if name == "clean":
            right = accuracy(scores[0])
    return CriterionResult(right, sum(errors.values()) / len(errors), errors)


@dataclass(frozen=True, eq=False)
class Candidate:
    """An epoch that may still turn out to be the best, with its weights."""

    epoch: int
    result: CriterionResult
    weights: dict[str, Any]

    def beats(self, other: "Candidate") -> bool:
        """Return whether the other can never be chosen: no more accurate, no lower criterion."""
        mine, theirs = self.result, other.result
        return mine.accuracy >= theirs.accuracy and mine.criterion <= theirs.criterion


def checked_epochs(epochs: int, parts: int = CHECKED_EPOCHS) -> set[int]:
    """Return the epochs whose criterion is computed, evenly spread and with the last."""
    return {-(-epochs * part // parts) for part in range(1, parts + 1)}


class EpochSelector:
    """Keeps the epoch of the lowest criterion among those that are accurate enough.

    Accurate enough is within the slack of the best accuracy seen, and of the reference's. If no
    epoch is, the most accurate one is kept. The best accuracy is known only at the end, so every
    epoch that may still be chosen is held, and no other.
    """

    def __init__(
        self,
        validation: Batches,
        epochs: int,
        bounds: Bounds | None = None,
        patience: int | None = None,
        agree: Callable[[list[float]], list[float]] | None = None,
    ) -> None:
        self.validation, self.bounds, self.patience = validation, bounds, patience
        self.agree = agree  # on one result, where several processes each compute it
        # with patience, every epoch
        self.checked_epochs = checked_epochs(epochs, CHECKED_EPOCHS if patience is None else epochs)
        self.required = getattr(validation, "required_accuracy", 0.0)
        self.candidates: list[Candidate] = []

    def check(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """Compute the criterion after an epoch, hold it if it may be chosen, return the figures."""
        if epoch not in self.checked_epochs:
            return {}
        result = self._agreed(validation_criterion(model, self.validation, self.bounds))
        self.required = max(self.required, result.accuracy - ACCURACY_SLACK)
        self._hold(Candidate(epoch, result, copy.deepcopy(model.state_dict())))
        return {"accuracy": result.accuracy, "criterion": result.criterion}

    def out_of_patience(self, epoch: int) -> bool:
        """Return whether the best epoch lies so far back that training ends."""
        return self.patience is not None and epoch - self.best().epoch >= self.patience

    def best(self) -> Candidate:
        """Return the candidate that is kept."""
        accurate = [one for one in self.candidates if one.result.accuracy >= self.required]
        if accurate:
            return min(accurate, key=lambda one: one.result.criterion)
        return max(self.candidates, key=lambda one: one.result.accuracy)

    def _agreed(self, result: CriterionResult) -> CriterionResult:
        if self.agree is None:
            return result
        right, criterion = self.agree([result.accuracy, result.criterion])
        return replace(result, accuracy=right, criterion=criterion)

    def _hold(self, new: Candidate) -> None:
        if any(old.beats(new) for old in self.candidates):
            return
        self.candidates = [old for old in self.candidates if not new.beats(old)] + [new]


def _in_memory(validation: Batches, bounds: Bounds | None) -> Examples:
    parts = list(checked_batches(validation))
    inputs, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return Examples(inputs, labels, bounds, getattr(validation, "classes", None))
