"""Checks of what a metric is given: at least one example, with true classes where it needs them."""

from collections.abc import Callable
from functools import wraps
from numbers import Number
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from falconcal.core.array_conversion import ArrayLike
from falconcal.errors import UserError, described
from falconcal.metrics.predictions import (
    Data,
    PredictionRecord,
    Predictions,
    Scores,
    TopPredictions,
    as_record,
)

Settings = ParamSpec("Settings")
Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)


class TakesArrays(Protocol[Settings, Value_co]):
    """A metric of predictions or scores, or of probabilities (N, C) and labels (N,)."""

    @overload
    def __call__(
        self, data: Data, /, *args: Settings.args, **settings: Settings.kwargs
    ) -> Value_co: ...
    @overload
    def __call__(
        self,
        data: ArrayLike,
        labels: ArrayLike,
        /,
        *args: Settings.args,
        **settings: Settings.kwargs,
    ) -> Value_co: ...


def takes_arrays(
    metric: Callable[Concatenate[PredictionRecord, Settings], Value],
) -> TakesArrays[Settings, Value]:
    """Make a metric of a record take probabilities (N, C) and labels (N,) too."""

    @wraps(metric)
    def taking(data: Any, *given: Any, **settings: Any) -> Any:
        if "labels" in settings:
            given = (settings.pop("labels"), *given)
        if given and not isinstance(given[0], Number | str):
            data, given = _with_labels(data, given[0], metric.__name__), given[1:]
        return metric(as_record(data), *given, **settings)

    return cast("TakesArrays[Settings, Value]", taking)


def _with_labels(data: Any, labels: Any, metric: str) -> tuple[Any, Any]:
    if isinstance(data, Predictions | TopPredictions):
        raise UserError(
            f"{metric}: {type(data).__name__} already have their labels, so only a number may "
            f"follow them, got {described(labels)}."
        )
    return data, labels


def scores_of(data: Data) -> Scores:
    """Return the scores of predictions or scores; no examples at all are refused."""
    record = _checked(data)
    return record.scores() if isinstance(record, Predictions) else record


def labelled(data: Data, metric: str) -> Scores:
    """Return scores whose examples all have a true class."""
    scores = scores_of(data)
    _check_labels(scores, metric)
    return scores


def distributed(scores: Scores, metric: str) -> Scores:
    """Return scores that keep what their distributions were; top predictions alone do not."""
    if scores.top_only:
        raise UserError(
            f"{metric} needs the probabilities of all classes, got top predictions alone: give a "
            "probability per class, or choose accuracy, ece or another figure of confidence."
        )
    return scores


def labelled_answers(data: Data, metric: str) -> TopPredictions:
    """Return top predictions whose examples all have a true class."""
    record = _checked(data)
    answers = record.answers() if isinstance(record, Predictions) else record
    _check_labels(answers, metric)
    return answers


def labelled_predictions(data: Data, metric: str) -> Predictions:
    """Return predictions of all classes whose examples all have a true class."""
    record = as_record(data)
    if not isinstance(record, Predictions):
        raise UserError(
            f"{metric} needs the probabilities of all classes, got {type(data).__name__}: "
            "compute it from Predictions, or accumulate it while predicting."
        )
    labelled_answers(record, metric)
    return record


def _checked(data: Data) -> PredictionRecord:
    record = as_record(data)
    if len(record) == 0:
        raise UserError("expected at least one example, got none.")
    return record


def _check_labels(answers: TopPredictions, metric: str) -> None:
    if answers.label.min() < 0:
        raise UserError(
            f"{metric} needs a true class for every example, got labels of -1, or none: only "
            "confidence and entropy need no labels. Pass labels after the probabilities, as in "
            "accuracy(probabilities, labels)."
        )
