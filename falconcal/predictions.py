"""Predictions: the one record that every later stage reads, and the scores it is reduced to."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import torch
from torch import Tensor, nn

from falconcal import processes
from falconcal.data import AT_ONCE, Batches, Part
from falconcal.data.conversion import ArrayLike, as_tensor
from falconcal.data.examples import check_batches, check_inputs, check_labels, pairs, shape
from falconcal.data.sharing import Share, share_of
from falconcal.errors import UserError, described
from falconcal.modes import check_module, evaluating, explained, placed, quick_zeros

# log of the smallest normal float64: the NLL of a true class given probability 0 is 708.4, finite
LOWEST_LOG = math.log(torch.finfo(torch.float64).tiny)
SUM_TOLERANCE = 1e-3


class Predictions:
    """A distribution over classes for every example, checked, with their labels.

    What was given is kept, log-probabilities or probabilities; the other is made when asked for.
    """

    def __init__(self, log_probs: ArrayLike, labels: ArrayLike) -> None:
        log_probs, labels = as_tensor(log_probs, "log-probabilities"), as_tensor(labels, "labels")
        _check_shape(log_probs)
        _check_sums(log_probs.double().exp().sum(1))
        self._log_probs: Tensor | None = log_probs  # (N, C)
        self._probs: Tensor | None = None  # (N, C)
        self.labels = _checked_labels(labels, log_probs)  # (N,); -1 marks one of no known class

    @classmethod
    def from_logits(cls, logits: ArrayLike, labels: ArrayLike) -> "Predictions":
        """Normalise logits, tensors or arrays; this is the only way that raw scores come in.

        A logit of minus infinity is a probability of 0, so log-probabilities are logits too.
        """
        logits, labels = as_tensor(logits, "logits"), as_tensor(labels, "labels")
        _check_shape(logits)
        if (logits.isnan() | logits.isposinf()).any() or logits.isneginf().all(1).any():
            raise UserError("expected finite logits, got NaN or infinity: has training diverged?")
        return cls(logits.double().log_softmax(1), labels)

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, labels: ArrayLike) -> "Predictions":
        """Take probabilities, tensors or arrays; rows that do not sum to 1 are refused."""
        probabilities = as_tensor(probabilities, "probabilities")
        labels = as_tensor(labels, "labels")
        _check_shape(probabilities)
        if not probabilities.is_floating_point():
            probabilities = probabilities.double()
        if probabilities.numel() and probabilities.amin() < 0:
            raise UserError(
                "expected probabilities, got negative values: for raw logits use "
                "Predictions.from_logits."
            )
        _check_sums(probabilities.sum(1))
        predictions = cls.__new__(cls)
        predictions._log_probs, predictions._probs = None, probabilities
        predictions.labels = _checked_labels(labels, probabilities)
        return predictions

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def log_probs(self) -> Tensor:
        """Normalised log-probabilities, (N, C)."""
        if self._log_probs is None:
            self._log_probs = self.probs.double().log()
        return self._log_probs

    @property
    def probs(self) -> Tensor:
        """Probabilities, (N, C)."""
        if self._probs is None:
            self._probs = self.log_probs.double().exp()
        return self._probs

    @property
    def classes(self) -> int:
        given = self._probs if self._log_probs is None else self._log_probs
        assert given is not None
        return given.shape[1]

    def take(self, index: Tensor) -> "Predictions":
        """Return the predictions of chosen examples, (K,) of their numbers."""
        return Predictions(self.log_probs[index], self.labels[index])

    def answers(self) -> "Answers":
        """Reduce each example to its answer, on the CPU: all that accuracy and calibration need."""
        confidence = self.probs.amax(1)  # (N,)
        # the index of the maximum would take most of the time: an answer is right where the true
        # class has the highest probability and no other has it too
        correct = (_of_class(self.probs, self.labels) == confidence) & (self.labels >= 0)
        # above a half there is no other
        unsure = (correct & (confidence <= 0.5 * (1 + SUM_TOLERANCE))).nonzero()[:, 0]
        rows = self.probs.index_select(0, unsure)
        if (rows == confidence[unsure][:, None]).count_nonzero() > len(rows):
            correct[unsure] = rows.argmax(1) == self.labels[unsure]
        return Answers(self.labels.cpu(), confidence.double().cpu(), correct.cpu())

    def scores(self) -> "Scores":
        """Reduce each example to what tables and figures need, on the CPU."""
        log_probs = self.log_probs.double().clamp_min(LOWEST_LOG)  # (N, C)
        probs = self.probs.double()  # (N, C)
        confidence, prediction = probs.max(1)
        # no truth, no score against it
        missing = torch.where(self.labels >= 0, 0.0, torch.nan)
        # sum_k (p_k - y_k)^2 = sum_k p_k^2 - 2 p_y + 1
        brier = probs.square().sum(1) - 2 * _of_class(probs, self.labels) + 1
        columns = {
            "label": self.labels,
            "confidence": confidence,
            "correct": prediction == self.labels,
            "prediction": prediction,
            "nll": missing - _of_class(log_probs, self.labels),
            "entropy": -(probs * log_probs).sum(1),
            "brier": brier + missing,
        }
        return Scores(**{name: column.cpu() for name, column in columns.items()})


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model said of each example and whether it was right; every field is (N,)."""

    label: Tensor
    confidence: Tensor
    correct: Tensor

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True, eq=False)
class Scores(Answers):
    """What remains of examples once their probabilities are gone; every field is (N,)."""

    prediction: Tensor
    nll: Tensor
    entropy: Tensor  # nats
    brier: Tensor

    def take(self, index: Tensor) -> "Scores":
        """Return the scores of chosen examples, (K,) of their numbers."""
        return Scores(*(getattr(self, field.name)[index] for field in fields(self)))

    def split(self, size: int | list[int]) -> list["Scores"]:
        """Return consecutive parts of the given size, or sizes."""
        columns = (torch.split(getattr(self, field.name), size) for field in fields(self))
        return [Scores(*parts) for parts in zip(*columns, strict=True)]

    def rows(self) -> Tensor:
        """Return all fields side by side as numbers, (N, 7)."""
        return torch.stack([getattr(self, field.name).double() for field in fields(self)], 1)

    @classmethod
    def from_rows(cls, rows: Tensor) -> "Scores":
        """Take what ``rows`` gave."""
        columns = dict(zip([field.name for field in fields(cls)], rows.unbind(1), strict=True))
        whole = {name: columns[name].long() for name in ("label", "prediction")}
        return cls(**{**columns, **whole, "correct": columns["correct"].bool()})

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


Record: TypeAlias = Predictions | Scores
Data: TypeAlias = Record | tuple[ArrayLike, ArrayLike] | ArrayLike


def as_record(data: Data) -> Record:
    """Return predictions or scores as they are; a pair (probabilities, labels) as predictions.

    Probabilities alone are predictions without true classes. Logits are never guessed.
    """
    if isinstance(data, Predictions | Answers):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Predictions.from_probabilities(*data)
    if not isinstance(data, list | tuple) and not hasattr(data, "__array__"):
        raise UserError(
            "expected Predictions, Scores, or probabilities (N, C) with labels (N,), got "
            f"{described(data)}: a model's answers come from falconcal.predict, a file's from "
            "falconcal.read_predictions."
        )
    probabilities = as_tensor(data, "probabilities")
    _check_shape(probabilities)
    return Predictions.from_probabilities(probabilities, torch.full((len(probabilities),), -1))


def predict(model: nn.Module, data: Batches | Part, *, alone: bool = False) -> Predictions:
    """Return the model's predictions on all the data, in inference mode, on the CPU.

    Where several processes work together, all of them call it: each predicts its share and has the
    predictions on the whole. ``alone`` is for a process that calls it by itself.
    """
    check_module(model)
    if not isinstance(data, Part):
        check_batches(data)
    shared = None if alone or processes.count() == 1 else share_of(data)
    parts = list(predict_batches(model, data if shared is None else shared))
    if shared is not None:
        return _together(parts, shared)
    if not parts:
        raise UserError("expected at least one batch, got none: is the loader empty?")
    log_probs = torch.cat([part.log_probs for part in parts])
    return Predictions(log_probs, torch.cat([part.labels for part in parts]))


def _together(parts: list[Predictions], shared: Share) -> Predictions:
    """Return the predictions of all processes in the order of the data."""
    own = [torch.cat([part.labels[:, None].double(), part.log_probs], 1) for part in parts]
    rows = shared.gathered(torch.cat(own) if own else None)  # (N, 1 + C)
    if len(rows) == 0:
        raise UserError("expected at least one batch, got none: is the loader empty?")
    return Predictions(rows[:, 1:], rows[:, 0].long())


def predict_batches(model: nn.Module, data: Batches | Part) -> Iterator[Predictions]:
    """Yield the predictions batch by batch, so that no more than one is held in memory."""
    batches = data.batches(AT_ONCE) if isinstance(data, Part) else data
    classes = getattr(batches, "classes", None)
    for inputs, labels in pairs(batches):
        check_inputs(inputs)
        with evaluating(model), torch.no_grad(), quick_zeros(), explained(inputs):
            logits = model(placed(model, inputs))
        check_logits(logits, len(inputs), len(classes) if classes else None)
        yield Predictions.from_logits(logits.cpu(), labels.cpu())


def check_logits(logits: Tensor, examples: int, classes: int | None) -> None:
    """Refuse a model output that is not one row of logits per example."""
    if not isinstance(logits, Tensor):
        raise UserError(
            f"expected logits from the model, one tensor (N, C), got {described(logits)}: wrap the "
            "model in a module whose forward returns the logits alone."
        )
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


def _of_class(rows: Tensor, labels: Tensor) -> Tensor:
    """Return each row's value at its label, (N, C) -> (N,); at the first class where it is -1."""
    return rows.gather(1, labels.clamp_min(0)[:, None])[:, 0]


def _checked_labels(labels: Tensor, rows: Tensor) -> Tensor:
    check_labels(labels, *rows.shape)
    return labels.long()


def _check_sums(sums: Tensor) -> None:
    if len(sums) == 0:
        return
    least, most = sums.aminmax()  # NaN if any is
    if not (least >= 1 - SUM_TOLERANCE and most <= 1 + SUM_TOLERANCE):
        bad = ~((sums - 1).abs() <= SUM_TOLERANCE)  # written so that NaN is bad
        row = int(bad.nonzero()[0])
        raise UserError(
            f"expected a distribution in every row, got probabilities that sum to "
            f"{float(sums[row]):.4g} in row {row}: for raw logits use Predictions.from_logits."
        )
