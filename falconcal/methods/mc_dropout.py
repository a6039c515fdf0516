"""MC dropout: the dropout of training goes on at test time, and predictions are averaged.

Gal & Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
Learning", ICML 2016. Trained as L2 + dropout; p(y|x) = 1/T sum_t p(y|x, mask_t). Only the dropout
layers sample at test time: BatchNorm keeps its running statistics. What comes before the first of
them is computed once.
"""

from functools import partial

from torch import nn

from falconcal.core.settings import Count, settings
from falconcal.errors import UserError
from falconcal.models.sampling import DROPOUTS, SampledModel
from falconcal.training import Objective, TrainingMethod, adam, clean_terms
from falconcal.training.model_setup import set_dropout


@settings
class MCDropout(TrainingMethod):
    """Train with cross-entropy; predict by the mean probabilities of many dropout masks.

    Needs dropout that acts: ``nn.Dropout`` layers with a probability above 0, dropout between the
    layers of a recurrent network, or attention's. A training step costs as much as a plain one; a
    prediction repeats what comes after the first dropout layer ``samples`` times.

    Raises:
        UserError: If no dropout acts in the model.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.MCDropout(epochs=3, dropout=0.1, samples=10)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    samples: Count = 50
    """Number T of dropout masks over which a prediction averages."""

    def build(self, model: nn.Module) -> nn.Module:
        if self.dropout is not None:
            set_dropout(model, self.dropout)
        _check(model)
        return SampledModel(model, self.samples, has_active_dropout, self.seed)

    def objectives(self) -> list[Objective]:
        return [Objective("clean", partial(clean_terms, self), adam(self))]


def has_active_dropout(layer: nn.Module) -> bool:
    """Return whether a layer drops anything; a recurrent one does so between its layers only."""
    if isinstance(layer, nn.RNNBase):
        return layer.dropout > 0 and layer.num_layers > 1
    if isinstance(layer, nn.MultiheadAttention):
        return bool(layer.dropout > 0)
    return isinstance(layer, DROPOUTS) and layer.p > 0


def _check(model: nn.Module) -> None:
    if not any(has_active_dropout(layer) for layer in model.modules()):
        raise UserError(
            "mc_dropout needs a model with dropout that acts, found none: add nn.Dropout layers, "
            "or set dropout=0.1 if theirs is 0. nn.LSTM(dropout=...) acts only between layers, "
            "so not with one layer: put an nn.Dropout before or after it."
        )
