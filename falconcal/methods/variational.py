"""What methods with Bayesian layers share: the evidence bound as a loss, and averaged draws.

The loss is the mean cross-entropy plus the divergence from the prior N(0, 1), summed over all
weights, divided by the number of training examples: the bound on the evidence, per example.
"""

import abc
from collections.abc import Sized
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler

from falconcal.bayesian import Bayesian, divergence
from falconcal.data import Batches
from falconcal.data.examples import TensorBatches, check_walkable, pairs
from falconcal.errors import UsageError
from falconcal.methods.dropout import adam, clean_terms
from falconcal.sampling import Sampled
from falconcal.settings import Count, PositiveShare, Weight, settings
from falconcal.training import Objective, Step, Training, annealed, fit_objectives
from falconcal.training.preparing import check_given


@settings
class Variational(Training, abc.ABC):
    """Settings of every method with Bayesian layers."""

    samples: Count = 30  # draws whose probabilities a prediction averages
    divergence_weight: Weight = 1.0  # below 1 the weights are more certain than Bayes' rule says
    divergence_annealing: PositiveShare = 0.5  # share of the epochs over which the weight rises

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        check_given(model, train, validation)
        bounds, network = getattr(train, "bounds", None), self.structure(model)
        objectives = self.objectives(count_examples(train))
        return fit_objectives(network, train, validation, objectives, self, bounds)

    def structure(self, model: nn.Module) -> nn.Module:
        return Sampled(self.convert(model), self.samples, is_bayesian, self.seed)

    def objectives(self, examples: int) -> list[Objective]:
        return [Objective("bound", partial(bound_terms, self, examples), adam(self))]

    @abc.abstractmethod
    def convert(self, model: nn.Module) -> nn.Module:
        """Return a copy of the model with Bayesian layers."""


def bound_terms(method: Variational, examples: int, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy of the batch, the divergence, and L2 where asked for."""
    share = method.divergence_annealing
    weight = annealed(method.divergence_weight, step.epoch, step.epochs, share)
    model = step.bare or step.model
    return {**clean_terms(method, step), "divergence": weight / examples * divergence(model)}


def is_bayesian(layer: nn.Module) -> bool:
    return isinstance(layer, Bayesian)


def count_examples(train: Batches) -> int:
    """Return how many examples an epoch has, of all processes together.

    What cannot say so is walked through once.
    """
    if isinstance(train, TensorBatches):
        return len(train.examples)
    if isinstance(train, DataLoader):
        # beside batches of one's own torch keeps a sampler of everything, which nothing walks
        sampler = getattr(train.batch_sampler, "sampler", None)
        chosen = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
        if isinstance(chosen, Sized):
            return len(chosen)
    with torch.random.fork_rng():
        check_walkable(train, "training")
        return sum(len(labels) for _, labels in pairs(train))


def refuse_l2(method: Variational) -> None:
    if method.l2_weight:
        raise UsageError(
            f"expected l2_weight 0 where every layer is Bayesian, got {method.l2_weight}: the "
            "prior is the penalty on the weights, and divergence_weight its strength."
        )
