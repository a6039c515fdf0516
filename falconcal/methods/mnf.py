"""Multiplicative normalising flows: weights whose means are scaled by a vector of rich density.

Louizos & Welling, "Multiplicative Normalizing Flows for Variational Bayesian Neural Networks", ICML
2017. The layers are in ``falconcal/models/bayesian``; the loss is the evidence bound of
``methods/variational.py``.
"""

from functools import partial
from typing import Annotated

from pydantic import Field
from torch import nn

from falconcal.core.randomness import seeded_random
from falconcal.core.settings import Count, settings
from falconcal.methods.variational import VariationalMethod, refuse_l2
from falconcal.models.bayesian import MNFConv2d, MNFLinear, to_bayesian


@settings
class MNF(VariationalMethod):
    """Train a Bayesian network with multiplicative normalising flows; the defaults are the paper's.

    Needs a model of ``nn.Linear`` and ``nn.Conv2d`` layers. A step costs about four times a plain
    one, and a prediction up to ``samples`` passes. The model that is given stays as it was.

    Raises:
        UserError: If a layer with weights has no Bayesian form.
        UsageError: If ``l2_weight`` is not 0.

    Example:
        >>> import torch
        >>> import falconcal
        >>> inputs = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> data = falconcal.Examples(inputs, (inputs[:, 0] > 0.5).long())
        >>> method = falconcal.MNF(epochs=10, learning_rate=0.05, samples=5, flows=1, width=8)
        >>> model = method.fit(torch.nn.Linear(4, 2), data.batches(50), data)
        >>> falconcal.accuracy(falconcal.predict(model, data)) > 0.8
        True
    """

    flows: Annotated[int, Field(ge=0)] = 2
    """Number of flows of the vector z, and of its auxiliary density; 0 leaves z normal."""
    width: Count = 50
    """Number of hidden units of a flow."""

    def convert(self, model: nn.Module) -> nn.Module:
        refuse_l2(self)
        made = {nn.Linear: MNFLinear, nn.Conv2d: MNFConv2d}
        sized = {
            kind: partial(form, flows=self.flows, width=self.width) for kind, form in made.items()
        }
        with seeded_random(self.seed):  # flows begin at random
            return to_bayesian(model, sized)
