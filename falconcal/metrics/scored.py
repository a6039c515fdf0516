"""What every metric asks first: scores, at least one, with true classes where it needs them."""

from falconcal.errors import UserError
from falconcal.predictions import Predictions, Scores


def scores_of(data: Predictions | Scores) -> Scores:
    """Return scores of either record; nothing at all is refused."""
    scores = data.scores() if isinstance(data, Predictions) else data
    if len(scores) == 0:
        raise UserError("expected at least one example, got none.")
    return scores


def labelled(data: Predictions | Scores, metric: str) -> Scores:
    """Return scores whose examples all have a true class."""
    scores = scores_of(data)
    if (scores.label < 0).any():
        raise UserError(
            f"{metric} needs a true class for every example, got labels of -1: "
            "only confidence and entropy are defined for them."
        )
    return scores


def labelled_predictions(data: Predictions, metric: str) -> Predictions:
    """Return predictions whose examples all have a true class, for what needs all classes."""
    if not isinstance(data, Predictions):
        raise UserError(
            f"{metric} needs the probabilities of all classes, got {type(data).__name__}: "
            "compute it from Predictions, or accumulate it while predicting."
        )
    labelled(data, metric)
    return data
