"""Evidential deep learning: the network gives evidence, and with it a Dirichlet distribution.

Sensoy, Kaplan & Kandemir, "Evidential Deep Learning to Quantify Classification Uncertainty",
NeurIPS 2018. Evidence e = relu(z), alpha = e + 1, S = sum of alpha, prediction alpha / S (not the
softmax of z). The expected loss under Dir(alpha), and a pull of evidence for wrong classes to none
whose weight rises over the first epochs.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.core.module_state import at_least_float32
from falconcal.core.settings import Count, NonNegative, settings
from falconcal.data import Batches
from falconcal.methods.l2_dropout import adam, l2_terms
from falconcal.training import Objective, Step, TrainingMethod, fit_objectives
from falconcal.training.losses import EvidentialForm, evidential_loss, misleading_evidence

EvidenceForm = Literal["relu", "softplus", "exp"]
LARGEST = 10.0  # of z under exp, as in the authors' code


@settings
class Evidential(TrainingMethod):
    """Settings of evidential deep learning; the defaults are the paper's."""

    form: EvidentialForm = "squares"  # of the expected loss: equation 5, 3 or 4
    evidence: EvidenceForm = "relu"  # relu can die; softplus and exp cannot
    divergence_weight: NonNegative = 1.0  # of the pull to no evidence
    divergence_epochs: Count = 10  # over which that weight rises

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        bounds, evidence = getattr(train, "bounds", None), self.build(model)
        return fit_objectives(evidence, train, validation, self.objectives(), self, bounds)

    def build(self, model: nn.Module) -> nn.Module:
        return EvidentialModel(model, self.evidence)

    def objectives(self) -> list[Objective]:
        return [Objective("evidential", partial(evidential_terms, self), adam(self))]


def evidential_terms(method: Evidential, step: Step) -> dict[str, Tensor]:
    """Return the expected loss, the weighted divergence, and L2 where asked for."""
    log_alpha = step.logits()  # (N, C)
    weight = method.divergence_weight * min(1.0, step.epoch / method.divergence_epochs)
    return {
        "expected": evidential_loss(log_alpha, step.labels, method.form),
        "divergence": weight * misleading_evidence(log_alpha, step.labels),
        **l2_terms(method, step),
    }


class EvidentialModel(nn.Module):
    """A network whose outputs are taken as evidence: inputs in, log alpha out.

    log alpha are logits of the prediction, since softmax(log alpha) = alpha / S, and keep S, so
    one module serves training and use.
    """

    def __init__(self, model: nn.Module, form: EvidenceForm = "relu") -> None:
        super().__init__()
        self.model, self.form = model, form
        self.training = model.training  # or every part would seem held in the other mode

    def forward(self, inputs: Tensor) -> Tensor:  # (N, ...) -> (N, C)
        return torch.log1p(EVIDENCE[self.form](at_least_float32(self.model(inputs))))


def _exp(outputs: Tensor) -> Tensor:
    return outputs.clamp(-LARGEST, LARGEST).exp()


EVIDENCE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "softplus": functional.softplus,
    "exp": _exp,
}
