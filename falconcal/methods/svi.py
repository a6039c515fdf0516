"""Stochastic variational inference: a normal distribution for every weight, learned by Flipout.

Blundell, Cornebise, Kavukcuoglu & Wierstra, "Weight Uncertainty in Neural Networks", ICML 2015;
Wen, Vicol, Ba, Tran & Grosse, "Flipout", ICLR 2018, for the gradients.
"""

from torch import nn

from falconcal.core.settings import settings
from falconcal.methods.variational import VariationalMethod, refuse_l2
from falconcal.models.bayesian import Flipout, to_bayesian


@settings
class SVI(VariationalMethod):
    """Settings of SVI; every dense and convolution layer is Bayesian."""

    def convert(self, model: nn.Module) -> nn.Module:
        refuse_l2(self)
        return to_bayesian(model, {nn.Linear: Flipout, nn.Conv2d: Flipout})
