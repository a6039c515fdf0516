"""Variational inference in the last dense layer alone, which works with any network.

Snoek et al., "Can You Trust Your Model's Uncertainty?", NeurIPS 2019, whose name for it is LL SVI.
Recurrent layers, attention and embeddings have no Bayesian form; the last layer nearly always has.
The loss is the evidence bound of ``methods/variational.py``.
"""

from torch import nn

from falconcal.core.settings import settings
from falconcal.methods.variational import VariationalMethod
from falconcal.models.bayesian import Flipout, with_bayesian_last_layer


@settings
class LastLayerSVI(VariationalMethod):
    """Train a network whose last dense layer is Bayesian.

    Needs an ``nn.Linear`` layer; anything may come before it. A step costs about as much as a plain
    one, and a prediction repeats the last layer ``samples`` times. ``l2_weight`` is for the layers
    before it, and its means. The model that is given stays as it was.

    Raises:
        UserError: If the model has no ``nn.Linear``, or none of the name ``layer``.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.LastLayerSVI(epochs=3, samples=5)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    layer: str | None = None
    """Name of the last layer in the model; None takes the ``nn.Linear`` that is defined last."""

    def convert(self, model: nn.Module) -> nn.Module:
        return with_bayesian_last_layer(model, {nn.Linear: Flipout}, self.layer)
