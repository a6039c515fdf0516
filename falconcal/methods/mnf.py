"""Multiplicative normalising flows: weights whose means are scaled by a vector of rich density.

Louizos & Welling, "Multiplicative Normalizing Flows for Variational Bayesian Neural Networks", ICML
2017. See ``falconcal/bayesian/mnf.py`` for the layers.
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
    """Settings of MNF; the defaults are the paper's."""

    flows: Annotated[int, Field(ge=0)] = 2  # of z, and as many of its auxiliary density
    width: Count = 50  # hidden units of a flow

    def convert(self, model: nn.Module) -> nn.Module:
        refuse_l2(self)
        made = {nn.Linear: MNFLinear, nn.Conv2d: MNFConv2d}
        sized = {
            kind: partial(form, flows=self.flows, width=self.width) for kind, form in made.items()
        }
        with seeded_random(self.seed):  # flows begin at random
            return to_bayesian(model, sized)
