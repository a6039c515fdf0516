"""L2 + dropout: cross-entropy with an L2 penalty on dense weights, the paper's plain baseline."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Adam

from falconcal.core.settings import settings
from falconcal.data import Batches
from falconcal.training import Objective, Step, TrainingMethod, fit_objectives
from falconcal.training.losses import cross_entropy, l2_penalty


@settings
class L2Dropout(TrainingMethod):
    """Train with cross-entropy; dropout is a matter of the model's own dropout layers."""

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        bounds = getattr(train, "bounds", None)
        return fit_objectives(model, train, validation, self.objectives(), self, bounds)

    def objectives(self) -> list[Objective]:
        return [Objective("clean", partial(clean_terms, self), adam(self))]


def clean_terms(training: TrainingMethod, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy of the batch, and the weighted L2 penalty where there is one."""
    return data_terms(training, step, step.logits())


def data_terms(training: TrainingMethod, step: Step, logits: Tensor) -> dict[str, Tensor]:
    return {"cross_entropy": cross_entropy(logits, step.labels), **l2_terms(training, step)}


def l2_terms(training: TrainingMethod, step: Step) -> dict[str, Tensor]:
    """Return the weighted L2 penalty, or nothing where its weight is 0."""
    if training.l2_weight == 0:
        return {}
    return {"l2": training.l2_weight * l2_penalty(step.model)}


def adam(training: TrainingMethod) -> partial[Adam]:
    """Return Adam at the training's learning rate, fused: one pass over the weights a step."""
    return partial(torch.optim.Adam, lr=training.learning_rate, fused=True)
