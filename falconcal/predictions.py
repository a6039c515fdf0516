"""Predictions: the one record that every later stage reads, and the scores it is reduced to."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from falconcal.data import Batches, Examples
from falconcal.data.examples import check_inputs, check_labels, pairs, shape
from falconcal.errors import UserError
from falconcal.modes import evaluating, placed

ArrayLike = Tensor | numpy.ndarray | Sequence[Any]

# log of the smallest normal float64: the NLL of a true class given probability 0 is 708.4, finite
LOWEST_LOG = math.log(torch.finfo(torch.float64).tiny)
SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Predictions:
    """Normalised log-probabilities, checked, with their labels."""

    log_probs: Tensor  # (N, C)
    labels: Tensor  # (N,); -1 marks an example of no known class

    def __post_init__(self) -> None:
        _check_shape(self.log_probs)
        check_labels(self.labels, *self.log_probs.shape)
        object.__setattr__(self, "labels", self.labels.long())
        _check_normalised(self.log_probs)

    @classmethod
    def from_logits(cls, logits: ArrayLike, labels: ArrayLike) -> "Predictions":
        """Normalise logits, tensors or arrays; this is the only way that raw scores come in.

        A logit of minus infinity is a probability of 0, so log-probabilities are logits too.
        """
        logits, labels = torch.as_tensor(logits), torch.as_tensor(labels)
        _check_shape(logits)
        if (logits.isnan() | logits.isposinf()).any() or logits.isneginf().all(1).any():
            raise UserError("expected finite logits, got NaN or infinity: has training diverged?")
        return cls(logits.double().log_softmax(1), labels)

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, labels: ArrayLike) -> "Predictions":
        """Take probabilities, tensors or arrays; rows that do not sum to 1 are refused."""
        probabilities, labels = torch.as_tensor(probabilities), torch.as_tensor(labels)
        if (probabilities < 0).any():
            raise UserError("expected probabilities, got negative values: use from_logits?")
        return cls(probabilities.double().log(), labels)

    def __len__(self) -> int:
        return len(self.labels)

    def scores(self) -> "Scores":
        """Reduce each example to what tables and figures need."""
        log_probs = self.log_probs.double().clamp_min(LOWEST_LOG)  # (N, C)
        probs = self.log_probs.double().exp()  # (N, C)
        confidence, prediction = probs.max(1)
        known = self.labels >= 0
        truth = self.labels.clamp_min(0)[:, None]  # (N, 1)
        missing = torch.where(known, 0.0, torch.nan)  # no truth, no score against it
        nll = -log_probs.gather(1, truth)[:, 0]
        # sum_k (p_k - y_k)^2 = sum_k p_k^2 - 2 p_y + 1
        brier = probs.square().sum(1) - 2 * probs.gather(1, truth)[:, 0] + 1
        return Scores(
            label=self.labels,
            prediction=prediction,
            confidence=confidence,
            correct=prediction == self.labels,
            nll=nll + missing,
            entropy=-(probs * log_probs).sum(1),
            brier=brier + missing,
        )


@dataclass(frozen=True, eq=False)
class Scores:
    """What remains of examples once their probabilities are gone; every field is (N,)."""

    label: Tensor
    prediction: Tensor
    confidence: Tensor
    correct: Tensor
    nll: Tensor
    entropy: Tensor  # nats
    brier: Tensor

    def __len__(self) -> int:
        return len(self.label)

    def take(self, index: Tensor) -> "Scores":
        """Return the scores of chosen examples, (K,) of their numbers."""
        return Scores(*(getattr(self, field.name)[index] for field in fields(self)))

    def split(self, size: int) -> list["Scores"]:
        """Return consecutive parts of the given size."""
        columns = (torch.split(getattr(self, field.name), size) for field in fields(self))
        return [Scores(*parts) for parts in zip(*columns, strict=True)]

    @classmethod
    def concatenate(cls, parts: Sequence["Scores"]) -> "Scores":
        if not parts:
            raise UserError("expected at least one batch, got none: is the loader empty?")
        return cls(
            **{
                field.name: torch.cat([getattr(part, field.name) for part in parts])
                for field in fields(cls)
            }
        )


def predict(model: nn.Module, data: Batches | Examples) -> Predictions:
    """Return the model's predictions on all the data, in inference mode, on the CPU."""
    parts = list(predict_batches(model, data))
    if not parts:
        raise UserError("expected at least one batch, got none: is the loader empty?")
    log_probs = torch.cat([part.log_probs for part in parts])
    return Predictions(log_probs, torch.cat([part.labels for part in parts]))


def predict_batches(model: nn.Module, data: Batches | Examples) -> Iterator[Predictions]:
    """Yield the predictions batch by batch, so that no more than one is held in memory."""
    batches = data.batches(500) if isinstance(data, Examples) else data
    classes = getattr(batches, "classes", None)
    for inputs, labels in pairs(batches):
        check_inputs(inputs)
        with evaluating(model), torch.no_grad():
            logits = model(placed(model, inputs)).cpu()
        check_logits(logits, len(inputs), len(classes) if classes else None)
        yield Predictions.from_logits(logits, labels.cpu())


def check_logits(logits: Tensor, examples: int, classes: int | None) -> None:
    """Refuse a model output that is not one row of logits an example."""
    width = "C" if classes is None else str(classes)
    right = logits.ndim == 2 and len(logits) == examples and logits.shape[1] >= 2
    if not right or (classes is not None and logits.shape[1] != classes):
        raise UserError(
            f"expected logits of shape ({examples}, {width}) from the model, got {shape(logits)}: "
            "does its last layer have one output a class?"
        )


def _check_shape(rows: Tensor) -> None:
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise UserError(
            f"expected a row an example and at least 2 classes, (N, C), got shape {shape(rows)}."
        )


def _check_normalised(log_probs: Tensor) -> None:
    sums = log_probs.double().exp().sum(1)  # (N,)
    bad = ~((sums - 1).abs() <= SUM_TOLERANCE)  # written so that NaN is bad
    if bad.any():
        row = int(bad.nonzero()[0])
        raise UserError(
            f"expected a distribution in every row, got probabilities that sum to "
            f"{float(sums[row]):.4g} in row {row}: for raw logits use Predictions.from_logits."
        )
