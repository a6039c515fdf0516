"""What is done to a model and its optimiser before they are trained."""

from torch import nn

from falconcal.errors import UserError
from falconcal.models.sampling import DROPOUTS


def set_dropout(model: nn.Module, probability: float) -> None:
    """Give every dropout layer of the model this probability."""
    layers = [layer for layer in model.modules() if isinstance(layer, DROPOUTS)]
    if not layers and probability > 0:
        raise UserError(
            f"dropout={probability} needs a model with nn.Dropout layers, found none: add them, "
            "or leave dropout=None."
        )
    for layer in layers:
        layer.p = probability
