"""MixUp: training on blends of two examples and of their labels.

Zhang, Cissé, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018;
Thulasidasan et al., "On Mixup Training", NeurIPS 2019, on calibration. One lambda ~ Beta(a, a) per
batch; the batch is blended with a permutation of itself, x = lambda x_i + (1 - lambda) x_j, tokens
at their embedding, and the loss is lambda L_CCE(y_i) + (1 - lambda) L_CCE(y_j).
"""

from functools import partial

import numpy
import torch
from torch import Tensor

from falconcal.core.settings import NonNegative, settings
from falconcal.training import Objective, Step, TrainingMethod, adam, l2_terms


@settings
class Mixup(TrainingMethod):
    """Train on blends of examples, between which confidence then falls.

    Works with any model; one of tokens is blended at its embedding, which is found in the model. A
    step costs about as much as a plain one.

    Raises:
        UserError: If the inputs are tokens and the model has no embedding that can be found.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.Mixup(epochs=3, alpha=0.2)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    alpha: NonNegative = 0.2
    """Parameter alpha of Beta(alpha, alpha), from which lambda is drawn; 0 blends nothing."""

    def objectives(self) -> list[Objective]:
        return [Objective("mixed", partial(mixed_terms, self), adam(self), perturbs=True)]


def mixed_terms(method: Mixup, step: Step) -> dict[str, Tensor]:
    """Return lambda L_CCE(y) + (1 - lambda) L_CCE(y of the partner), and the L2 penalty."""
    weight, partners = draw_weight(method.alpha, step), draw_partners(step)
    logits = step.logits_at(blend(step.point(), partners, weight))  # (N, C)
    loss = weight * step.cross_entropy(logits)
    loss = loss + (1 - weight) * step.cross_entropy(logits, partners)
    return {"cross_entropy": loss, **l2_terms(method, step)}


def blend(points: Tensor, partners: Tensor, weight: float) -> Tensor:
    """Return lambda x + (1 - lambda) x of the partner: (N, ...), (N,) -> (N, ...)."""
    return weight * points + (1 - weight) * points[partners]


def draw_weight(alpha: float, step: Step) -> float:
    """Draw lambda for the batch; Beta(0, 0) is taken as its limit, one example or the other."""
    if alpha == 0:
        return 1.0
    seed = int(torch.randint(2**62, (), generator=step.random))  # torch's Beta takes no generator
    return float(numpy.random.default_rng(seed).beta(alpha, alpha))


def draw_partners(step: Step) -> Tensor:
    return torch.randperm(len(step.labels), generator=step.random).to(step.labels.device)
