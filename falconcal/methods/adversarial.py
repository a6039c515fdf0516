"""Adversarial training: each example twice, as it is and moved a little up the loss.

Goodfellow, Shlens & Szegedy, "Explaining and Harnessing Adversarial Examples", ICLR 2015, in the
form of Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation
using Deep Ensembles", NeurIPS 2017: minimise CE(x) + CE(x'), x' = x + epsilon * range * sign(grad).
"""

from functools import partial

from torch import Tensor, nn

from falconcal.core.perturbation_point import input_gradient
from falconcal.core.settings import NonNegative, settings
from falconcal.data import Batches
from falconcal.methods.falcon import InputBounds
from falconcal.methods.falcon_directions import perturb_batch
from falconcal.methods.l2_dropout import adam, clean_terms
from falconcal.training import Objective, Step, TrainingMethod, fit_objectives
from falconcal.training.losses import cross_entropy


@settings
class Adversarial(TrainingMethod):
    """Settings of adversarial training; the default is that of deep ensembles."""

    epsilon: NonNegative = 0.01  # of the input range; 0 is training without it
    bounds: InputBounds = "data"  # of the inputs: those of the data, stated ones, or None

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        bounds = self.bounds if self.epsilon > 0 else None
        return fit_objectives(model, train, validation, self.objectives(), self, bounds)

    def objectives(self) -> list[Objective]:
        terms, perturbs = partial(adversarial_terms, self), self.epsilon > 0
        return [Objective("adversarial", terms, adam(self), perturbs=perturbs)]


def adversarial_terms(method: Adversarial, step: Step) -> dict[str, Tensor]:
    """CE(x) + CE(x'), and L2 where asked for."""
    if method.epsilon == 0:
        return clean_terms(method, step)
    # first, since the gradient is taken by a pass of its own, in inference mode
    gradient = input_gradient(
        step.bare or step.model, step.inputs, step.labels, step.perturbation_point
    )
    terms = clean_terms(method, step)
    logits = step.logits_at(perturb_batch(step, gradient.sign(), method.epsilon))  # (N, C)
    return {**terms, "adversarial": cross_entropy(logits, step.labels)}
