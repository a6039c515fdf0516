"""Entropy and label smoothing: smoothed labels, and a penalty on predictions of low entropy.

Pereyra, Tucker, Chorowski, Kaiser & Hinton, "Regularizing Neural Networks by Penalizing Confident
Output Distributions", ICLR workshop 2017; both together gave the best raw probabilities over eight
natural shifts in Roschewitz et al., arXiv 2507.07780. Per batch: the mean cross-entropy against
(1 - epsilon) y + epsilon / C, plus ``beta sum_k p_k log p_k``.
"""

from functools import partial

from torch import Tensor

from falconcal.core.module_state import at_least_float32
from falconcal.core.settings import Fraction, NonNegative, settings
from falconcal.training import Objective, Step, TrainingMethod, adam, l2_terms


@settings
class EntropySmoothing(TrainingMethod):
    """Train against smoothed labels, with a reward for entropy.

    Works with any model; a step costs as much as a plain one.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.EntropySmoothing(epochs=3)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    smoothing: Fraction = 0.05
    """Fraction epsilon of each label that is spread evenly over all classes; 0 switches it off."""
    entropy_weight: NonNegative = 0.1
    """Weight beta of the entropy; 0 switches it off."""

    def objectives(self) -> list[Objective]:
        return [Objective("smoothed", partial(entropy_smoothing_terms, self), adam(self))]


def entropy_smoothing_terms(method: EntropySmoothing, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy against smoothed labels, the entropy, and the L2 penalty."""
    logits = step.logits()  # (N, C)
    terms = {"cross_entropy": step.cross_entropy(logits, smoothing=method.smoothing)}
    if method.entropy_weight > 0:
        log_probs = at_least_float32(logits).log_softmax(1)
        terms["entropy"] = method.entropy_weight * step.mean((log_probs.exp() * log_probs).sum(1))
    return {**terms, **l2_terms(method, step)}
