"""MixUp: training on blends of two examples and of their labels.

Zhang, Cissé, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018;
Thulasidasan et al., "On Mixup Training", NeurIPS 2019, on calibration. One lambda ~ Beta(a, a) a
batch; the batch is blended with a permutation of itself, tokens at their embedding.
"""

from functools import partial

import numpy
import torch
from torch import Tensor, nn

from falconcal.core.settings import NonNegative, settings
from falconcal.data import Batches
from falconcal.methods.l2_dropout import adam, l2_terms
from falconcal.training import Objective, Step, TrainingMethod, fit_objectives
from falconcal.training.losses import cross_entropy


@settings
class Mixup(TrainingMethod):
    """Settings of MixUp."""

    alpha: NonNegative = 0.2  # of Beta(alpha, alpha); 0 blends nothing

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        bounds = getattr(train, "bounds", None)
        return fit_objectives(model, train, validation, self.objectives(), self, bounds)

    def objectives(self) -> list[Objective]:
        return [Objective("mixed", partial(mixed_terms, self), adam(self), perturbs=True)]


def mixed_terms(method: Mixup, step: Step) -> dict[str, Tensor]:
    """lambda * L_CCE(y) + (1 - lambda) * L_CCE(y of the partner), and L2 where asked for."""
    share, partners = draw_share(method.alpha, step), draw_partners(step)
    logits = step.logits_at(blend(step.point(), partners, share))  # (N, C)
    loss = share * cross_entropy(logits, step.labels)
    loss = loss + (1 - share) * cross_entropy(logits, step.labels[partners])
    return {"cross_entropy": loss, **l2_terms(method, step)}


def blend(points: Tensor, partners: Tensor, share: float) -> Tensor:
    """lambda * x + (1 - lambda) * x of the partner: (N, ...), (N,) -> (N, ...)."""
    return share * points + (1 - share) * points[partners]


def draw_share(alpha: float, step: Step) -> float:
    """Draw lambda for the batch; Beta(0, 0) is taken as its limit, one example or the other."""
    if alpha == 0:
        return 1.0
    seed = int(torch.randint(2**62, (), generator=step.random))  # torch's Beta takes no generator
    return float(numpy.random.default_rng(seed).beta(alpha, alpha))


def draw_partners(step: Step) -> Tensor:
    return torch.randperm(len(step.labels), generator=step.random).to(step.labels.device)
