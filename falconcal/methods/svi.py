"""Stochastic variational inference: a normal distribution for every weight, learned by Flipout.

Blundell, Cornebise, Kavukcuoglu & Wierstra, "Weight Uncertainty in Neural Networks", ICML 2015;
Wen, Vicol, Ba, Tran & Grosse, "Flipout", ICLR 2018, for the gradients. The loss is the evidence
bound of ``methods/variational.py``.
"""

from torch import nn

from falconcal.core.settings import settings
from falconcal.methods.variational import VariationalMethod, refuse_l2
from falconcal.models.bayesian import Flipout, to_bayesian


@settings
class SVI(VariationalMethod):
    """Train a network in which every dense and convolution layer is Bayesian.

    Needs a model of ``nn.Linear`` and ``nn.Conv2d`` layers; recurrent layers, attention and
    embeddings have no Bayesian form. A step costs about twice a plain one, and a prediction up to
    ``samples`` passes. The model that is given stays as it was.

    Raises:
        UserError: If a layer with weights has no Bayesian form.
        UsageError: If ``l2_weight`` is not 0.

    Example:
        >>> import torch
        >>> import falconcal
        >>> inputs = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> data = falconcal.Examples(inputs, (inputs[:, 0] > 0.5).long())
        >>> method = falconcal.SVI(epochs=10, learning_rate=0.05, samples=5)
        >>> model = method.fit(torch.nn.Linear(4, 2), data.batches(50), data)
        >>> falconcal.accuracy(falconcal.predict(model, data)) > 0.8
        True
    """

    def convert(self, model: nn.Module) -> nn.Module:
        refuse_l2(self)
        return to_bayesian(model, {nn.Linear: Flipout, nn.Conv2d: Flipout})
