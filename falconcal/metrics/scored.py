"""What every metric asks first: examples, at least one, with true classes where it needs them."""

from collections.abc import Callable
from functools import wraps
from numbers import Number
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from falconcal.data.conversion import ArrayLike
from falconcal.errors import UserError, described
from falconcal.predictions import Answers, Data, Predictions, Record, Scores, as_record

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
    metric: Callable[Concatenate[Record, Settings], Value],
) -> TakesArrays[Settings, Value]:
    """Let a metric take probabilities (N, C) and labels (N,), arrays or tensors, for a record."""

    @wraps(metric)
    def taking(data: Any, *given: Any, **settings: Any) -> Any:
        if "labels" in settings:
            given = (settings.pop("labels"), *given)
        if given and not isinstance(given[0], Number | str):
            data, given = _with_labels(data, given[0], metric.__name__), given[1:]
        return metric(as_record(data), *given, **settings)

    return cast("TakesArrays[Settings, Value]", taking)


def _with_labels(data: Any, labels: Any, metric: str) -> tuple[Any, Any]:
    if isinstance(data, Predictions | Answers):
        raise UserError(
            f"{metric} of {type(data).__name__}, which have their labels: expected a number after "
            f"them, if anything, got {described(labels)}."
        )
    return data, labels


def scores_of(data: Data) -> Scores:
    """Return scores of either record; nothing at all is refused."""
    record = _checked(data)
    return record.scores() if isinstance(record, Predictions) else record


def labelled(data: Data, metric: str) -> Scores:
    """Return scores whose examples all have a true class."""
    scores = scores_of(data)
    _check_labels(scores, metric)
    return scores


def labelled_answers(data: Data, metric: str) -> Answers:
    """Return answers whose examples all have a true class, for what needs no more than those."""
    record = _checked(data)
    answers = record.answers() if isinstance(record, Predictions) else record
    _check_labels(answers, metric)
    return answers


def labelled_predictions(data: Data, metric: str) -> Predictions:
    """Return predictions whose examples all have a true class, for what needs all classes."""
    record = as_record(data)
    if not isinstance(record, Predictions):
        raise UserError(
            f"{metric} needs the probabilities of all classes, got {type(data).__name__}: "
            "compute it from Predictions, or accumulate it while predicting."
        )
    labelled_answers(record, metric)
    return record


def _checked(data: Data) -> Record:
    record = as_record(data)
    if len(record) == 0:
        raise UserError("expected at least one example, got none.")
    return record


def _check_labels(answers: Answers, metric: str) -> None:
    if answers.label.min() < 0:
        raise UserError(
            f"{metric} needs a true class for every example, got labels of -1, or none: only "
            "confidence and entropy are defined without. Labels come after the probabilities, as "
            "in accuracy(probabilities, labels)."
        )
