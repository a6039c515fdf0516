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
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.SVI(epochs=3, learning_rate=0.005, samples=5)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    def convert(self, model: nn.Module) -> nn.Module:
        refuse_l2(self)
        return to_bayesian(model, {nn.Linear: Flipout, nn.Conv2d: Flipout})
