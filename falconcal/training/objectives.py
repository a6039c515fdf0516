"""Objectives, and the terms that several methods share.

A training method is a short ordered list of objectives, each with its own optimiser, each stepped
once per batch. When one keeps the gradient at the perturbation point, the next may use it: that is
FALCON's shared-gradient mode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from falconcal.training.common_settings import TrainingSettings
from falconcal.training.losses import l2_penalty
from falconcal.training.step import Step


@dataclass(frozen=True)
class Objective:
    """Named terms whose sum is minimised with an optimiser of its own.

    Args:
        name: The name of the objective in records, as in ``clean/cross_entropy``.
        terms: Takes a ``Step`` and returns the terms by name, each a scalar with a gradient.
        optimizer: Makes the optimiser from the list of weights.
        batch_fraction: The fraction of batches that it takes part in, chosen at random.
        keeps_input_gradient: Whether it leaves the gradient at the perturbation point to the next.
        reduction: Whether a term is a mean or a sum over the examples of a batch.
        perturbs: Whether it moves what enters the model, so that the point must be known.
        updates_running_statistics: Whether running statistics (BatchNorm) see its batches.
        network: The auxiliary network whose weights it steps; None is the model.
        counts_examples: Whether its terms need the number of training examples.

    Example:
        >>> import torch
        >>> from falconcal.training import Objective
        >>> def terms(step):
        ...     return {"squares": step.logits().square().mean()}
        >>> objective = Objective("small", terms, torch.optim.SGD, batch_fraction=0.5)
        >>> objective.reduction
        'mean'
    """

    name: str
    terms: Callable[[Step], dict[str, Tensor]]
    optimizer: Callable[[list[nn.Parameter]], Optimizer]
    batch_fraction: float = 1.0
    keeps_input_gradient: bool = False
    reduction: Literal["mean", "sum"] = "mean"
    perturbs: bool = False
    updates_running_statistics: bool = True
    network: str | None = None
    counts_examples: bool = False


def clean_terms(settings: TrainingSettings, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy of the clean batch, and the L2 penalty where it has a weight.

    Args:
        settings: The method, of which ``l2_weight`` is used.
        step: The batch.

    Returns:
        The terms ``cross_entropy`` and, unless its weight is 0, ``l2``.

    Example:
        >>> import torch
        >>> from falconcal.training import Step, clean_terms
        >>> from falconcal.methods import L2Dropout
        >>> batch = torch.zeros(2, 4), torch.tensor([0, 1])
        >>> step = Step(torch.nn.Linear(4, 3), *batch, 1, 20, torch.Generator())
        >>> list(clean_terms(L2Dropout(l2_weight=0.1), step))
        ['cross_entropy', 'l2']
    """
    return data_terms(settings, step, step.logits())


def data_terms(settings: TrainingSettings, step: Step, logits: Tensor) -> dict[str, Tensor]:
    """Return the terms of ``clean_terms`` for logits that are computed already."""
    return {"cross_entropy": step.cross_entropy(logits), **l2_terms(settings, step)}


def l2_terms(settings: TrainingSettings, step: Step) -> dict[str, Tensor]:
    """Return the weighted L2 penalty of a model's dense weights.

    Args:
        settings: The method, of which ``l2_weight`` is used.
        step: The batch, of which the model is used.

    Returns:
        The term ``l2``, or no term where the weight is 0.

    Raises:
        UserError: If the model has no ``nn.Linear`` layer.

    Example:
        >>> import torch
        >>> from falconcal.training import Step, l2_terms
        >>> from falconcal.methods import L2Dropout
        >>> batch = torch.zeros(2, 4), torch.tensor([0, 1])
        >>> step = Step(torch.nn.Linear(4, 3), *batch, 1, 20, torch.Generator())
        >>> l2_terms(L2Dropout(), step)
        {}
    """
    if settings.l2_weight == 0:
        return {}
    return {"l2": settings.l2_weight * l2_penalty(step.model)}


def adam(settings: TrainingSettings) -> partial[Adam]:
    """Return what makes Adam at the learning rate of the settings, fused into one kernel.

    Args:
        settings: The method, of which ``learning_rate`` is used.

    Returns:
        A function from a list of weights to their optimiser.

    Example:
        >>> from torch import nn
        >>> from falconcal.methods import L2Dropout
        >>> from falconcal.training import adam
        >>> adam(L2Dropout(learning_rate=0.01))(nn.Linear(4, 3).parameters()).defaults["lr"]
        0.01
    """
    return partial(Adam, lr=settings.learning_rate, fused=True)


def annealed(weight: float, epoch: int, epochs: int, fraction: float) -> float:
    """Return a weight that rises linearly over the first epochs.

    Args:
        weight: The weight once it has risen.
        epoch: The epoch, counted from 1.
        epochs: The number of epochs.
        fraction: The fraction of the epochs over which it rises.

    Returns:
        The weight at that epoch.

    Example:
        >>> from falconcal.training import annealed
        >>> [annealed(50.0, epoch, 20, 0.5) for epoch in (1, 5, 10, 20)]
        [5.0, 25.0, 50.0, 50.0]
    """
    return min(weight, weight * epoch / (fraction * epochs))
