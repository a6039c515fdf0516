"""What methods with Bayesian layers share: the evidence bound as a loss, and averaged draws.

Per batch: L_CCE + lambda / N * KL(q(w) || p(w)), the negative evidence lower bound per example. q
is the distribution of the weights, the prior p is N(0, 1), the divergence is summed over all
weights, and N is the number of training examples.
"""

import abc
from functools import partial

from torch import Tensor, nn

from falconcal.core.settings import Count, NonNegative, PositiveFraction, settings
from falconcal.errors import UsageError
from falconcal.models.bayesian import BayesianLayer, divergence
from falconcal.models.sampling import SampledModel
from falconcal.training import Objective, Step, TrainingMethod, adam, annealed, clean_terms


@settings
class VariationalMethod(TrainingMethod, abc.ABC):
    """Base of methods with Bayesian layers; ``fit`` trains a Bayesian copy of the model."""

    samples: Count = 30
    """Number of networks drawn, over whose probabilities a prediction averages."""
    divergence_weight: NonNegative = 1.0
    """Weight lambda of the divergence; 1 is Bayes' rule, below 1 weights are more certain."""
    divergence_annealing: PositiveFraction = 0.5
    """Fraction of the epochs over which that weight rises linearly to its value."""

    @abc.abstractmethod
    def convert(self, model: nn.Module) -> nn.Module:
        """Return a copy of the model with Bayesian layers."""

    def build(self, model: nn.Module) -> nn.Module:
        return SampledModel(self.convert(model), self.samples, is_bayesian, self.seed)

    def objectives(self) -> list[Objective]:
        return [Objective("bound", partial(elbo_terms, self), adam(self), counts_examples=True)]


def elbo_terms(method: VariationalMethod, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy of the batch, the divergence, and the L2 penalty."""
    assert step.training_examples is not None
    fraction = method.divergence_annealing
    weight = annealed(method.divergence_weight, step.epoch, step.epochs, fraction)
    per_example = weight / step.training_examples
    return {**clean_terms(method, step), "divergence": per_example * divergence(step.unwrapped)}


def is_bayesian(layer: nn.Module) -> bool:
    return isinstance(layer, BayesianLayer)


def refuse_l2(method: VariationalMethod) -> None:
    if method.l2_weight:
        raise UsageError(
            f"expected l2_weight 0 where every layer is Bayesian, got {method.l2_weight}: the "
            "prior is the penalty on the weights, and divergence_weight its strength."
        )
