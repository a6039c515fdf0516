"""Adversarial training: each example twice, as it is and moved a little up the loss.

Goodfellow, Shlens & Szegedy, "Explaining and Harnessing Adversarial Examples", ICLR 2015, in the
form of Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation
using Deep Ensembles", NeurIPS 2017: minimise CE(x) + CE(x'), x' = x + epsilon * range * sign(grad).
"""

from functools import partial

from torch import Tensor

from falconcal.core.perturbation_point import input_gradient
from falconcal.core.settings import NonNegative, settings
from falconcal.data import Batches
from falconcal.methods.falcon import InputBounds
from falconcal.methods.falcon_directions import perturb_batch
from falconcal.training import Objective, Step, TrainingMethod, adam, clean_terms
from falconcal.training.step import StatedBounds


@settings
class Adversarial(TrainingMethod):
    """Train on each batch and on its FGSM-perturbed copy; members of a deep ensemble are so.

    Needs the range of the inputs (``bounds``); a step costs about three times a plain one.

    Raises:
        UserError: If the range of the inputs is not known, or they lie outside of it.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.Adversarial(epochs=3, epsilon=0.05)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    epsilon: NonNegative = 0.01
    """Size of the perturbation as a fraction of the input range; 0 trains on clean data alone."""
    bounds: InputBounds = "data"
    """Range of the inputs: that of the data, a stated one, or None to leave inputs unclipped."""

    def objectives(self) -> list[Objective]:
        terms, perturbs = partial(adversarial_terms, self), self.epsilon > 0
        return [Objective("adversarial", terms, adam(self), perturbs=perturbs)]

    def input_bounds(self, train: Batches) -> StatedBounds:  # noqa: ARG002
        return self.bounds if self.epsilon > 0 else None


def adversarial_terms(method: Adversarial, step: Step) -> dict[str, Tensor]:
    """Return CE(x) + CE(x'), and the L2 penalty."""
    if method.epsilon == 0:
        return clean_terms(method, step)
    # first, since the gradient is taken by a pass of its own, in inference mode
    gradient = input_gradient(step.unwrapped, step.inputs, step.labels, step.perturbation_point)
    terms = clean_terms(method, step)
    logits = step.logits_at(perturb_batch(step, gradient.sign(), method.epsilon))  # (N, C)
    return {**terms, "adversarial": step.cross_entropy(logits)}
