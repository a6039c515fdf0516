"""Warnings when training ended with a model that knows nothing, or dares nothing."""

import warnings

from falconcal.errors import CalibrationWarning, CollapseWarning
from falconcal.metrics import accuracy, mean_confidence
from falconcal.metrics.predictions import Predictions

TIMID = 0.27  # of the way from chance to accuracy, what mean confidence must reach


def warn_if_timid(predictions: Predictions) -> None:
    """Warn when training has driven mean confidence far below accuracy."""
    if (predictions.labels < 0).any():
        return  # the accuracy is not known
    right, sure = accuracy(predictions), mean_confidence(predictions)
    chance = 1 / predictions.log_probs.shape[1]
    if right < chance + 0.1 or sure - chance > TIMID * (right - chance):
        return
    warnings.warn(
        f"training left the model timid: validation accuracy {right:.3f} at mean confidence "
        f"{sure:.3f}. Lower entropy_weight where the method has it, train longer, or recalibrate.",
        CalibrationWarning,
        stacklevel=4,
    )


def warn_if_collapsed(predictions: Predictions) -> None:
    """Warn when a trained model is no better than always predicting the most common class."""
    if (predictions.labels < 0).any():
        return  # the accuracy is not known
    chance = int(predictions.labels.bincount().max()) / len(predictions)
    if accuracy(predictions) > chance + 0.05 or chance > 0.9:
        return
    warnings.warn(
        f"training collapsed or hardly began: validation accuracy {accuracy(predictions):.3f}, "
        f"where always answering the commonest class gives {chance:.3f}. A model that knows "
        "nothing can look calibrated; train longer, or lower the weights or the learning rates.",
        CollapseWarning,
        stacklevel=4,
    )
