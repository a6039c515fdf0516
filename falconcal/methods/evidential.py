"""Evidential deep learning: the network gives evidence, and with it a Dirichlet distribution.

Sensoy, Kaplan & Kandemir, "Evidential Deep Learning to Quantify Classification Uncertainty",
NeurIPS 2018. Evidence e = relu(z), alpha = e + 1, S = sum of alpha, prediction alpha / S (not the
softmax of z). Per batch: the expected loss under Dir(alpha), plus a weighted
KL(Dir(y + (1 - y) * alpha) || Dir(1)) that pulls evidence for wrong classes to 0; its weight rises
over the first epochs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.core.model_inputs import call_model, packed
from falconcal.core.module_state import at_least_float32
from falconcal.core.settings import Count, NonNegative, settings
from falconcal.training import Objective, Step, TrainingMethod, adam, l2_terms
from falconcal.training.losses import EvidentialForm, evidential_loss, misleading_evidence

EvidenceForm = Literal["relu", "softplus", "exp"]
MAX_EXPONENT = 10.0  # of z under exp, as in the authors' code


@settings
class Evidential(TrainingMethod):
    """Train a network whose outputs are evidence; the defaults are the paper's.

    Works with any model. ``fit`` returns the model inside a module that gives log alpha, whose
    softmax is the prediction. A step costs about as much as a plain one.

    Example:
        >>> import torch
        >>> import falconcal
        >>> inputs = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> data = falconcal.Examples(inputs, (inputs[:, 0] > 0.5).long())
        >>> method = falconcal.Evidential(epochs=10, learning_rate=0.1, evidence="exp")
        >>> model = method.fit(torch.nn.Linear(4, 2), data.batches(50), data)
        >>> falconcal.accuracy(falconcal.predict(model, data)) > 0.8
        True
    """

    form: EvidentialForm = "squares"
    """The expected loss: ``squares`` (equation 5), ``log`` (3) or ``digamma`` (4)."""
    evidence: EvidenceForm = "relu"
    """How outputs become evidence; units of ``relu`` can die, ``softplus`` and ``exp`` cannot."""
    divergence_weight: NonNegative = 1.0
    """Weight lambda of the divergence, once it has risen; 0 switches the term off."""
    divergence_epochs: Count = 10
    """Number of epochs over which that weight rises linearly."""

    def build(self, model: nn.Module) -> nn.Module:
        return EvidentialModel(model, self.evidence)

    def objectives(self) -> list[Objective]:
        return [Objective("evidential", partial(evidential_terms, self), adam(self))]


def evidential_terms(method: Evidential, step: Step) -> dict[str, Tensor]:
    """Return the expected loss, the weighted divergence, and the L2 penalty."""
    log_alpha = step.logits()  # (N, C)
    weight = method.divergence_weight * min(1.0, step.epoch / method.divergence_epochs)
    return {
        "expected": evidential_loss(log_alpha, step.labels, method.form, step.mean),
        "divergence": weight * misleading_evidence(log_alpha, step.labels, step.mean),
        **l2_terms(method, step),
    }


class EvidentialModel(nn.Module):
    """A network whose outputs are taken as evidence: inputs in, log alpha out.

    log alpha are logits of the prediction, since softmax(log alpha) = alpha / S, and S can be
    computed from them, so one module serves training and prediction.
    """

    def __init__(self, model: nn.Module, form: EvidenceForm = "relu") -> None:
        super().__init__()
        self.model, self.form = model, form
        self.training = model.training  # else all submodules would count as held in the other mode

    def forward(self, *inputs: Any, **named: Any) -> Tensor:  # (N, ...) -> (N, C)
        outputs = call_model(self.model, packed(inputs, named))
        return torch.log1p(EVIDENCE[self.form](at_least_float32(outputs)))


def _exp(outputs: Tensor) -> Tensor:
    return outputs.clamp(-MAX_EXPONENT, MAX_EXPONENT).exp()


EVIDENCE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "softplus": functional.softplus,
    "exp": _exp,
}
