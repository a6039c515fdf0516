"""Settings that all training methods share."""

from typing import Annotated, Literal

from lightning_fabric.strategies import STRATEGY_REGISTRY
from pydantic import AfterValidator

from falconcal.core.settings import (
    Count,
    Decay,
    Fraction,
    LearningRate,
    NonNegative,
    PositiveNumber,
    Seed,
    settings,
)
from falconcal.training.precision import Precision


def _known(strategy: str) -> str:
    names = ["auto", *STRATEGY_REGISTRY.available_strategies()]
    if strategy not in names:
        raise ValueError(f"should be one of Fabric's, {', '.join(names)}")
    return strategy


@settings
class TrainingSettings:
    """Settings that all training methods share."""

    epochs: Count = 20
    """Number of passes over the training data; with ``patience`` the most there can be."""
    learning_rate: LearningRate = 1e-3
    """Step size of Adam, which trains the model on clean batches."""
    l2_weight: NonNegative = 0.0
    """Weight of the sum of squared weights of all dense layers; 0 switches the penalty off."""
    dropout: Fraction | None = None
    """Probability for every dropout layer of the model; None leaves the model's own."""
    seed: Seed = 0
    """Seed of all that training draws: masks of dropout, perturbations, the order of a loader."""
    keep: Literal["last", "best"] = "last"
    """Which epoch's weights are kept: the last, or the best by the validation criterion."""
    patience: Count | None = None
    """Epochs without a better one after which training ends; the best is kept. None: no end."""
    clip_norm: PositiveNumber | None = None
    """Largest norm of the gradient of a step; None leaves gradients as they are."""
    accumulate: Count = 1
    """Number of batches that make one step together."""
    average: Decay | None = None
    """Decay of a running mean of the weights, which is then what is kept; None keeps no mean."""
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train, as Lightning Fabric names it."""
    devices: Count = 1
    """Number of devices of this machine, with one process for each."""
    num_nodes: Count = 1
    """Number of machines that train together."""
    strategy: Annotated[str, AfterValidator(_known)] = "auto"
    """How several processes train together, as Lightning Fabric names it."""
    precision: Precision = "32-true"
    """Number format of training, as Lightning Fabric names it."""
    reuse_memory: bool = True
    """Whether freed memory is kept for the next step, on Linux CPUs: faster, the same numbers."""


SETTINGS_WITHOUT_EFFECT = ("reuse_memory",)  # on what is trained: a checkpoint may have another
