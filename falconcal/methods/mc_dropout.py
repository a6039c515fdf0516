"""MC dropout: the dropout of training goes on at test time, and predictions are averaged.

Gal & Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
Learning", ICML 2016. Trained as L2 + dropout; at test time the dropout layers sample, and nothing
else does: BatchNorm keeps its running statistics. What comes before the first of them is computed
once.
"""

from functools import partial

from torch import nn

from falconcal.core.settings import Count, settings
from falconcal.data import Batches
from falconcal.errors import UserError
from falconcal.methods.l2_dropout import adam, clean_terms
from falconcal.models.sampling import DROPOUTS, SampledModel
from falconcal.training import Objective, TrainingMethod, fit_objectives, set_dropout


@settings
class MCDropout(TrainingMethod):
    """Train with cross-entropy; predict by the mean probabilities of many dropout masks."""

    samples: Count = 50

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        bounds, sampled = getattr(train, "bounds", None), self.build(model)
        return fit_objectives(sampled, train, validation, self.objectives(), self, bounds)

    def build(self, model: nn.Module) -> nn.Module:
        if self.dropout is not None:
            set_dropout(model, self.dropout)
        _check(model)
        return SampledModel(model, self.samples, has_active_dropout, self.seed)

    def objectives(self) -> list[Objective]:
        return [Objective("clean", partial(clean_terms, self), adam(self))]


def has_active_dropout(layer: nn.Module) -> bool:
    """Say whether a layer drops anything: recurrent ones do between layers, so not with one."""
    if isinstance(layer, nn.RNNBase):
        return layer.dropout > 0 and layer.num_layers > 1
    if isinstance(layer, nn.MultiheadAttention):
        return bool(layer.dropout > 0)
    return isinstance(layer, DROPOUTS) and layer.p > 0


def _check(model: nn.Module) -> None:
    if not any(has_active_dropout(layer) for layer in model.modules()):
        raise UserError(
            "mc_dropout needs a model with dropout that acts, found none: add nn.Dropout layers, "
            "or set dropout=0.1 if theirs is 0. nn.LSTM(dropout=...) acts between layers alone, "
            "so not with one: put an nn.Dropout before or after it."
        )
