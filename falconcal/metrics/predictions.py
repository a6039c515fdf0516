"""Predictions: the record that every later stage reads, and the scores it is reduced to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy
import torch
from torch import Tensor

from falconcal.core.array_conversion import ArrayLike, as_tensor
from falconcal.core.batch import shape_of
from falconcal.core.data_frames import label_numbers
from falconcal.data.input_checks import check_labels
from falconcal.drawing.record_html import record_html
from falconcal.errors import UserError, described

if TYPE_CHECKING:
    import altair

# log of the smallest normal float64: the NLL of a true class given probability 0 is 708.4, finite
LOWEST_LOG = math.log(torch.finfo(torch.float64).tiny)
SUM_TOLERANCE = 1e-3


class Predictions:
    """A checked distribution over classes for every example, with the true classes.

    What was given is kept, log-probabilities or probabilities; the other is made when asked for. A
    label of -1 marks an example of no known class.

    Args:
        log_probs: Log-probabilities (N, C), each row of which sums to 1 within 0.001 as
            probabilities.
        labels: True classes (N,), whole numbers from -1 to C - 1.

    Raises:
        UserError: If a row is not a distribution, shapes do not match, or a label is no class.

    Example:
        >>> from falconcal import Predictions
        >>> predictions = Predictions.from_probabilities([[0.9, 0.1], [0.2, 0.8]], [0, 0])
        >>> len(predictions), predictions.classes
        (2, 2)
        >>> predictions.scores().correct.tolist()
        [True, False]
    """

    def __init__(self, log_probs: ArrayLike, labels: ArrayLike) -> None:
        labels = as_tensor(label_numbers(labels, log_probs), "labels")
        log_probs = as_tensor(log_probs, "log-probabilities")
        _check_shape(log_probs)
        _check_sums(log_probs.double().exp().sum(1))
        self._log_probs: Tensor | None = log_probs  # (N, C)
        self._probs: Tensor | None = None  # (N, C)
        self.labels = _checked_labels(labels, log_probs)  # (N,); -1 marks one of no known class

    @classmethod
    def from_logits(cls, logits: ArrayLike, labels: ArrayLike) -> "Predictions":
        """Return predictions from logits; raw scores come in by no other way.

        A logit of minus infinity is a probability of 0, so log-probabilities are logits too.

        Args:
            logits: Logits (N, C).
            labels: True classes (N,); -1 for no known class.

        Returns:
            The predictions.

        Raises:
            UserError: If a logit is NaN or infinity, shapes do not match, or a label is no class.
        """
        labels = as_tensor(label_numbers(labels, logits), "labels")
        logits = as_tensor(logits, "logits")
        _check_shape(logits)
        if (logits.isnan() | logits.isposinf()).any() or logits.isneginf().all(1).any():
            raise UserError("expected finite logits, got NaN or infinity: has training diverged?")
        return cls(logits.double().log_softmax(1), labels)

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, labels: ArrayLike) -> "Predictions":
        """Return predictions from probabilities, whose rows must sum to 1 within 0.001.

        Args:
            probabilities: Probabilities (N, C).
            labels: True classes (N,); -1 for no known class. Beside a data frame whose columns are
                named by the classes, these names too.

        Returns:
            The predictions.

        Raises:
            UserError: If a row is not a distribution, shapes do not match, or a label is no class.
        """
        labels = as_tensor(label_numbers(labels, probabilities), "labels")
        probabilities = as_tensor(probabilities, "probabilities")
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
        """The number of classes."""
        given = self._probs if self._log_probs is None else self._log_probs
        assert given is not None
        return given.shape[1]

    def take(self, index: Tensor) -> "Predictions":
        """Return the predictions of chosen examples, by their positions (K,)."""
        return Predictions(self.log_probs[index], self.labels[index])

    def answers(self) -> "TopPredictions":
        """Reduce each example to its top prediction, which is all that calibration needs."""
        confidence = self.probs.amax(1)  # (N,)
        # the index of the maximum would take most of the time: an answer is right where the true
        # class has the highest probability and no other has it too
        correct = (_of_class(self.probs, self.labels) == confidence) & (self.labels >= 0)
        # above a half there is no other
        unsure = (correct & (confidence <= 0.5 * (1 + SUM_TOLERANCE))).nonzero()[:, 0]
        rows = self.probs.index_select(0, unsure)
        if (rows == confidence[unsure][:, None]).count_nonzero() > len(rows):
            correct[unsure] = rows.argmax(1) == self.labels[unsure]
        return TopPredictions(self.labels.cpu(), confidence.double().cpu(), correct.cpu())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        """Return the probabilities (N, C) to NumPy, and to all that takes its arrays."""
        return numpy.array(self.probs.double().cpu().numpy(), dtype=dtype, copy=copy)

    def plot(self) -> "altair.LayerChart":
        """Return the reliability diagram as an Altair chart."""
        return self.scores().plot()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many predictions, how right and how sure."""
        return self.scores()._repr_html_()

    def scores(self) -> "Scores":
        """Reduce each example to the numbers that tables and figures need, on the CPU."""
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
class TopPredictions:
    """The top prediction of each example and whether it was right; every field is (N,)."""

    label: Tensor
    """The true class; -1 for no known class."""
    confidence: Tensor
    """The probability of the most probable class."""
    correct: Tensor
    """Whether that is the true class."""

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True, eq=False)
class Scores(TopPredictions):
    """The numbers that remain of each example without its probabilities; every field is (N,).

    Example:
        >>> from falconcal import Predictions
        >>> scores = Predictions.from_probabilities([[0.8, 0.2]], [1]).scores()
        >>> scores.confidence.tolist(), scores.correct.tolist(), round(float(scores.nll), 4)
        ([0.8], [False], 1.6094)
    """

    prediction: Tensor
    """The most probable class."""
    nll: Tensor
    """-log p(true class) in nats; NaN without a true class."""
    entropy: Tensor
    """Entropy of the distribution in nats; NaN where the top prediction alone is known."""
    brier: Tensor
    """Squared distance to the one-hot truth; NaN without a true class."""

    @classmethod
    def from_top_predictions(
        cls, labels: ArrayLike, predictions: ArrayLike, confidence: ArrayLike
    ) -> "Scores":
        """Return scores of top predictions; what needs the other classes is NaN.

        Args:
            labels: True classes (N,); -1 for no known class.
            predictions: The most probable classes (N,).
            confidence: Their probabilities (N,), from 0 to 1.

        Returns:
            The scores, without NLL, entropy and Brier score.

        Raises:
            UserError: If the shapes differ, or a confidence is not from 0 to 1.
        """
        truth, chosen = as_tensor(labels, "labels"), as_tensor(predictions, "predictions")
        sure = as_tensor(confidence, "confidences").double()
        _check_top(truth, chosen, sure)
        unknown = torch.full_like(sure, torch.nan)
        return cls(
            label=truth.long(),
            confidence=sure,
            correct=truth == chosen,
            prediction=chosen.long(),
            nll=unknown,
            entropy=unknown,
            brier=unknown,
        )

    def plot(self) -> "altair.LayerChart":
        """Return the reliability diagram as an Altair chart."""
        from falconcal.drawing.reliability_chart import reliability_chart
        from falconcal.metrics.calibration import reliability_curve
        from falconcal.metrics.reliability_bins import reliability_bins_table

        return reliability_chart(reliability_bins_table(reliability_curve(self)))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many predictions, how right and how sure."""
        from falconcal.metrics.notebook_figures import notebook_figures

        return record_html(
            [f"{len(self):,} predictions."], ["Figure", "Value"], notebook_figures(self)
        )

    @property
    def top_only(self) -> bool:
        """Whether the top predictions alone are known, not the distributions."""
        return bool(self.entropy.isnan().any())

    def take(self, index: Tensor) -> "Scores":
        """Return the scores of chosen examples, by their positions (K,)."""
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
        """Return the scores that ``rows`` was called on."""
        columns = dict(zip([field.name for field in fields(cls)], rows.unbind(1), strict=True))
        whole = {name: columns[name].long() for name in ("label", "prediction")}
        return cls(**{**columns, **whole, "correct": columns["correct"].bool()})

    @classmethod
    def concatenate(cls, parts: Sequence["Scores"]) -> "Scores":
        """Return the scores of all parts, in their order."""
        if not parts:
            raise UserError("expected at least one batch, got none: is the loader empty?")
        return cls(
            **{
                field.name: torch.cat([getattr(part, field.name) for part in parts])
                for field in fields(cls)
            }
        )


PredictionRecord: TypeAlias = Predictions | Scores
Data: TypeAlias = PredictionRecord | tuple[ArrayLike, ArrayLike] | ArrayLike


def as_record(data: Data) -> PredictionRecord:
    """Return predictions or scores as they are; a pair (probabilities, labels) as predictions.

    Probabilities alone are predictions without true classes. Logits are never guessed.
    """
    if isinstance(data, Predictions | TopPredictions):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Predictions.from_probabilities(*data)
    if not isinstance(data, list | tuple) and not hasattr(data, "__array__"):
        raise UserError(
            "expected Predictions, Scores, or probabilities (N, C) with labels (N,), got "
            f"{described(data)}: falconcal.predict gives those of a model, "
            "falconcal.read_predictions those of a file."
        )
    probabilities = as_tensor(data, "probabilities")
    _check_shape(probabilities)
    return Predictions.from_probabilities(probabilities, torch.full((len(probabilities),), -1))


def _check_shape(rows: Tensor) -> None:
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise UserError(
            "expected one row per example and at least 2 classes, (N, C), got shape "
            f"{shape_of(rows)}."
        )


def _of_class(rows: Tensor, labels: Tensor) -> Tensor:
    """Return each row's value at its label, (N, C) -> (N,); at the first class where it is -1."""
    return rows.gather(1, labels.clamp_min(0)[:, None])[:, 0]


def _checked_labels(labels: Tensor, rows: Tensor) -> Tensor:
    check_labels(labels, *rows.shape)
    return labels.long()


def _check_top(labels: Tensor, predictions: Tensor, confidence: Tensor) -> None:
    shapes = [shape_of(column) for column in (labels, predictions, confidence)]
    if len(set(shapes)) > 1 or labels.ndim != 1:
        raise UserError(
            "expected a label, a prediction and a confidence per example, three of shape (N,), "
            f"got {', '.join(map(str, shapes))}."
        )
    if not ((confidence >= 0) & (confidence <= 1)).all():  # written so that NaN is outside
        raise UserError("expected confidences from 0 to 1: for raw scores use their softmax.")


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
