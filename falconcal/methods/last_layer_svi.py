"""Variational inference in the last dense layer alone, which works with any network.

Snoek et al., "Can You Trust Your Model's Uncertainty?", NeurIPS 2019, whose name for it is LL SVI.
Recurrent layers, attention and embeddings have no Bayesian form; the last layer nearly always has.
"""

from torch import nn

from falconcal.bayesian import Flipout, with_last_layer
from falconcal.methods.variational import Variational
from falconcal.settings import settings


@settings
class LastLayerSVI(Variational):
    """Settings of SVI in the last layer; L2 is for the layers before it, and its means."""

    layer: str | None = None  # its name in the model; None takes the nn.Linear defined last

    def convert(self, model: nn.Module) -> nn.Module:
        return with_last_layer(model, {nn.Linear: Flipout}, self.layer)
