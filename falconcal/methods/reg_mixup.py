"""RegMixup: plain cross-entropy, and beside it that of blends of two examples.

Pinto, Yang, Lim, Torr & Dokania, "Using Mixup as a Regularizer Can Surprisingly Improve Accuracy
and Out-of-Distribution Robustness", NeurIPS 2022. One lambda ~ Beta(alpha, alpha) per batch, alpha
large, so that blends are nearly halves: CE(x, y) + eta (lambda CE(x', y) + (1 - lambda) CE(x', y of
the partner)), x' = lambda x + (1 - lambda) x of the partner, in one pass over the doubled batch.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from falconcal.core.model_inputs import join_inputs
from falconcal.core.settings import NonNegative, settings
from falconcal.methods.mixup import blend, draw_partners, draw_weight
from falconcal.training import Objective, Step, TrainingMethod, adam, l2_terms


@settings
class RegMixup(TrainingMethod):
    """Train on clean examples and on blends of them, half and half.

    Works with any model; one of tokens is blended at its embedding, which is found in the model. A
    step costs about twice a plain one.

    Raises:
        UserError: If the inputs are tokens and the model has no embedding that can be found.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.RegMixup(epochs=3)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    alpha: NonNegative = 10.0
    """Parameter alpha of Beta(alpha, alpha), from which lambda is drawn; 0 blends nothing."""
    mixed_weight: NonNegative = 1.0
    """Weight eta of the cross-entropy of the blends."""

    def objectives(self) -> list[Objective]:
        return [Objective("mixed", partial(reg_mixup_terms, self), adam(self), perturbs=True)]


def reg_mixup_terms(method: RegMixup, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy of the batch, that of its blends, and the L2 penalty."""
    weight, partners = draw_weight(method.alpha, step), draw_partners(step)
    point = step.point()
    clean, mixed = repeated(step, 2).logits_at(
        torch.cat([point, blend(point, partners, weight)])
    ).chunk(2)  # fmt: skip
    own, other = step.cross_entropy(mixed), step.cross_entropy(mixed, partners)
    return {
        "cross_entropy": step.cross_entropy(clean),
        "mixed": method.mixed_weight * (weight * own + (1 - weight) * other),
        **l2_terms(method, step),
    }


def repeated(step: Step, times: int) -> Step:
    """Return a step of the same batch several times over."""
    inputs, labels = join_inputs([step.inputs] * times), torch.cat([step.labels] * times)
    return replace(step, inputs=inputs, labels=labels)
