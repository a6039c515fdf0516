"""What every metric asks first: examples, at least one, with true classes where it needs them."""

from falconcal.errors import UserError
from falconcal.predictions import Answers, Predictions, Scores


def scores_of(data: Predictions | Scores) -> Scores:
    """Return scores of either record; nothing at all is refused."""
    _check_any(data)
    return data.scores() if isinstance(data, Predictions) else data


def labelled(data: Predictions | Scores, metric: str) -> Scores:
    """Return scores whose examples all have a true class."""
    scores = scores_of(data)
    _check_labels(scores, metric)
    return scores


def labelled_answers(data: Predictions | Scores, metric: str) -> Answers:
    """Return answers whose examples all have a true class, for what needs no more than those."""
    _check_any(data)
    answers = data.answers() if isinstance(data, Predictions) else data
    _check_labels(answers, metric)
    return answers


def labelled_predictions(data: Predictions | Scores, metric: str) -> Predictions:
    """Return predictions whose examples all have a true class, for what needs all classes."""
    if not isinstance(data, Predictions):
        raise UserError(
            f"{metric} needs the probabilities of all classes, got {type(data).__name__}: "
            "compute it from Predictions, or accumulate it while predicting."
        )
    labelled_answers(data, metric)
    return data


def _check_any(data: Predictions | Scores) -> None:
    if len(data) == 0:
        raise UserError("expected at least one example, got none.")


def _check_labels(answers: Answers, metric: str) -> None:
    if answers.label.min() < 0:
        raise UserError(
            f"{metric} needs a true class for every example, got labels of -1: "
            "only confidence and entropy are defined for them."
        )
