"""Variational inference in the last dense layer alone, which works with any network.

Snoek et al., "Can You Trust Your Model's Uncertainty?", NeurIPS 2019, whose name for it is LL SVI.
Recurrent layers, attention and embeddings have no Bayesian form; the last layer nearly always has.
"""

from torch import nn

from falconcal.core.settings import settings
from falconcal.methods.variational import VariationalMethod
from falconcal.models.bayesian import Flipout, with_bayesian_last_layer


@settings
class LastLayerSVI(VariationalMethod):
    """Settings of SVI in the last layer; L2 is for the layers before it, and its means."""

    layer: str | None = None  # its name in the model; None takes the nn.Linear defined last

    def convert(self, model: nn.Module) -> nn.Module:
        return with_bayesian_last_layer(model, {nn.Linear: Flipout}, self.layer)
