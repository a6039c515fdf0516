"""Choosing the epoch: the one of the lowest criterion among those that reach what is required."""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from falconcal.data import Batches, Bounds
from falconcal.training.criterion import (
    ACCURACY_SLACK,
    CriterionResult,
    Requirements,
    validation_criterion,
)

CHECKED_EPOCHS = 10  # epochs whose criterion is computed, evenly spread and with the last


@dataclass(frozen=True, eq=False)
class Candidate:
    """An epoch that may still turn out to be the best, with its weights."""

    epoch: int
    result: CriterionResult
    weights: dict[str, Any]

    def beats(self, other: "Candidate") -> bool:
        """Return whether the other can never be chosen: it is nowhere better."""
        mine, theirs = self.result, other.result
        return (
            mine.accuracy >= theirs.accuracy
            and mine.criterion <= theirs.criterion
            and mine.clean_ece <= theirs.clean_ece
        )


def checked_epochs(epochs: int, parts: int = CHECKED_EPOCHS) -> set[int]:
    """Return the epochs whose criterion is computed, evenly spread and with the last."""
    return {-(-epochs * part // parts) for part in range(1, parts + 1)}


class EpochSelector:
    """Keeps the epoch of the lowest criterion among those that reach what is required.

    Required is an accuracy within the slack of the best accuracy seen, and of the reference's, and
    where the criterion says so a clean ECE near the reference's. If no epoch reaches that, the one
    that lacks least is kept. The best accuracy is known only at the end, so every epoch that may
    still be chosen is held, and no other.
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
        self.required: Requirements = getattr(validation, "required", Requirements())
        self.candidates: list[Candidate] = []

    def check(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """Compute the criterion after an epoch, hold it if it may be chosen, return the figures."""
        if epoch not in self.checked_epochs:
            return {}
        result = self._agreed(validation_criterion(model, self.validation, self.bounds))
        wanted = max(self.required.accuracy, result.accuracy - ACCURACY_SLACK)
        self.required = replace(self.required, accuracy=wanted)
        self._hold(Candidate(epoch, result, copy.deepcopy(model.state_dict())))
        figures = asdict(result)
        return {name: figures[name] for name in ("accuracy", "criterion", "clean_ece")}

    def out_of_patience(self, epoch: int) -> bool:
        """Return whether the best epoch lies so far back that training ends."""
        return self.patience is not None and epoch - self.best().epoch >= self.patience

    def best(self) -> Candidate:
        """Return the candidate that is kept."""
        return min(
            self.candidates,
            key=lambda one: (self.required.shortfall(one.result), one.result.criterion),
        )

    def _agreed(self, result: CriterionResult) -> CriterionResult:
        if self.agree is None:
            return result
        right, criterion, home = self.agree([result.accuracy, result.criterion, result.clean_ece])
        return replace(result, accuracy=right, criterion=criterion, clean_ece=home)

    def _hold(self, new: Candidate) -> None:
        if any(old.beats(new) for old in self.candidates):
            return
        self.candidates = [old for old in self.candidates if not new.beats(old)] + [new]
