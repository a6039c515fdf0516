"""A warning when training ended with a model that knows nothing."""

import warnings

from falconcal.errors import CollapseWarning
from falconcal.metrics import accuracy
from falconcal.metrics.predictions import Predictions


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
