"""Choosing by validation data alone: one number for settings, and the same number for the epoch.

The criterion is the mean over families of the mean ECE over a family's levels. Families are the
clean validation data, FGSM at the ten epsilons, and shifts that the study does not test. It counts
only where validation accuracy is within ``ACCURACY_SLACK`` of the reference: a model that knows
nothing is perfectly calibrated.
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
CHECKED_EPOCHS = 10  # epochs that are judged in a training, evenly spread, the last among them


@dataclass(frozen=True)
class CriterionResult:
    """Validation accuracy, and the criterion: the lower the better."""

    accuracy: float
    criterion: float
    families: Mapping[str, float] = field(default_factory=dict)  # mean ECE over its levels


@dataclass(frozen=True, eq=False)
class ShiftedValidation:
    """Validation data with its families made once, so that every method meets the same images.

    It walks like the clean validation data, all of it, so it can stand wherever that does.
    """

    whole: Part
    clean: Examples  # those that are judged
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
    data: Part, reference: nn.Module, shifts: Iterable[Shift], judged: int | None = None
) -> ShiftedValidation:
    """Make the families: FGSM against a fixed reference model, and the given shifts.

    ``judged`` is of how many examples; all unless given.

    Tokens are whole numbers and cannot be moved along a gradient: they have no family of FGSM.
    """
    clean = sample(data, judged)
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
    """An epoch that may yet turn out the best, with its weights."""

    epoch: int
    judgement: CriterionResult
    weights: dict[str, Any]

    def beats(self, other: "Candidate") -> bool:
        """Tell whether the other can never be chosen: no more accurate, no lower criterion."""
        mine, theirs = self.judgement, other.judgement
        return mine.accuracy >= theirs.accuracy and mine.criterion <= theirs.criterion


class EpochSelector:
    """Keeps the epoch of the lowest criterion among those that are accurate enough.

    Enough is within the slack of the best accuracy seen, and of the reference's. Where no epoch is,
    the most accurate one is kept. Which accuracy is best is known at the end alone, so every epoch
    that may yet win is held, and no other.
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
        self.agree = agree  # on figures, where several processes come to their own
        # whoever waits for so many epochs looks at every one
        parts = CHECKED_EPOCHS if patience is None else epochs
        self.judged = {-(-epochs * part // parts) for part in range(1, parts + 1)}
        self.required = getattr(validation, "required_accuracy", 0.0)
        self.candidates: list[Candidate] = []

    def judge(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """Judge the model after an epoch, hold it if it may win, and return the figures."""
        if epoch not in self.judged:
            return {}
        judgement = self._agreed(validation_criterion(model, self.validation, self.bounds))
        self.required = max(self.required, judgement.accuracy - ACCURACY_SLACK)
        self._hold(Candidate(epoch, judgement, copy.deepcopy(model.state_dict())))
        return {"accuracy": judgement.accuracy, "criterion": judgement.criterion}

    def out_of_patience(self, epoch: int) -> bool:
        """Tell whether the best epoch lies so far back that training ends."""
        return self.patience is not None and epoch - self.best().epoch >= self.patience

    def _agreed(self, judgement: CriterionResult) -> CriterionResult:
        if self.agree is None:
            return judgement
        right, criterion = self.agree([judgement.accuracy, judgement.criterion])
        return replace(judgement, accuracy=right, criterion=criterion)

    def best(self) -> Candidate:
        """Return the candidate that is kept."""
        enough = [one for one in self.candidates if one.judgement.accuracy >= self.required]
        if enough:
            return min(enough, key=lambda one: one.judgement.criterion)
        return max(self.candidates, key=lambda one: one.judgement.accuracy)

    def _hold(self, new: Candidate) -> None:
        if any(old.beats(new) for old in self.candidates):
            return
        self.candidates = [old for old in self.candidates if not new.beats(old)] + [new]


def _in_memory(validation: Batches, bounds: Bounds | None) -> Examples:
    parts = list(checked_batches(validation))
    inputs, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return Examples(inputs, labels, bounds, getattr(validation, "classes", None))
