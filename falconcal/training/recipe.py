"""What one training may be told besides its settings: losses, weights, optimiser, schedule.

Settings are numbers and words that a file can hold; these are functions and tensors, or belong to
one dataset. ``fit`` takes them by keyword.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau, SequentialLR

from falconcal.core.batch import Batches, checked_batches
from falconcal.core.module_state import at_least_float32, explain_errors
from falconcal.errors import UserError, described

BaseLoss = Callable[[Tensor, Tensor], Tensor]  # logits (N, C), labels or targets -> (N,)
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler]
ClassWeights = Sequence[float] | Tensor | Literal["balanced"] | None


EXAMPLES = {
    "optimizer": "lambda weights: torch.optim.AdamW(weights, lr=1e-3)",
    "scheduler": "lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)",
    "loss": "torch.nn.CrossEntropyLoss(reduction='none')",
}


class TrainingOptions(TypedDict, total=False):
    """The keywords of ``fit``, as ``Recipe`` documents them."""

    optimizer: MakeOptimizer | None
    scheduler: MakeScheduler | None
    warmup_steps: int
    class_weights: ClassWeights
    label_smoothing: float
    loss: BaseLoss | None


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a training is told besides its settings.

    Args:
        optimizer: Makes the optimiser of the model from a list of weights; None takes the method's
            own, Adam. FALCON's calibration step keeps its own.
        scheduler: Makes a schedule of its learning rate from that optimiser; it is stepped after
            every step of training.
        warmup_steps: Steps over which the learning rate rises linearly to its value.
        class_weights: One factor per class that multiplies the loss of its examples, or
            ``"balanced"`` for N / (C n_c), counted in one pass over the training data.
        label_smoothing: The fraction of each label that is spread evenly over all classes.
        loss: The base loss instead of the cross-entropy: takes logits (N, C) and labels (N,), or
            distributions (N, C) where labels are soft, and returns one loss per example (N,).

    Raises:
        UserError: A value is not as described.

    Example:
        >>> from torch.optim import SGD
        >>> from falconcal.training import Recipe
        >>> recipe = Recipe(optimizer=lambda weights: SGD(weights, lr=0.1), warmup_steps=100)
        >>> recipe.label_smoothing
        0.0
    """

    optimizer: MakeOptimizer | None = None
    scheduler: MakeScheduler | None = None
    warmup_steps: int = 0
    class_weights: ClassWeights = None
    label_smoothing: float = 0.0
    loss: BaseLoss | None = None

    def __post_init__(self) -> None:
        for name in ("optimizer", "scheduler", "loss"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise UserError(
                    f"expected {name} to be a function, such as {EXAMPLES[name]}, got "
                    f"{described(given)}."
                )
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise UserError(f"expected warmup_steps of 0 or more, got {self.warmup_steps!r}.")
        if not 0 <= self.label_smoothing < 1:
            raise UserError(
                f"expected label_smoothing from 0 to below 1, got {self.label_smoothing!r}."
            )

        if isinstance(self.class_weights, str) and self.class_weights != "balanced":
            raise _class_weights_error(self.class_weights)

    def schedule(self, optimizer: Optimizer) -> LRScheduler | None:
        """Return the schedule of a learning rate: the warm-up, then the scheduler; or None."""
        own = None if self.scheduler is None else self.scheduler(optimizer)
        if isinstance(own, ReduceLROnPlateau):
            raise UserError(
                "expected a scheduler that needs no metric, got ReduceLROnPlateau: choose another, "
                "or train in a loop of your own with FalconStep."
            )
        if self.warmup_steps == 0:
            return own
        steps = self.warmup_steps
        rising = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / steps))
        return rising if own is None else SequentialLR(optimizer, [rising, own], [steps])

    def weights_of(self, train: Batches) -> Tensor | None:
        """Return the factor of each class, (C,), counted in the data where that is asked for."""
        given = self.class_weights
        if given is None:
            return None
        if isinstance(given, str):
            return balanced_weights(train)
        if isinstance(given, Mapping):
            raise _class_weights_error(given)
        weights = torch.as_tensor(given, dtype=torch.float32)
        if weights.ndim != 1 or not bool((weights >= 0).all()):
            raise _class_weights_error(given)
        return weights


def _class_weights_error(given: object) -> UserError:
    return UserError(
        "expected class_weights as a list with one number of 0 or more per class, in their order, "
        f"or 'balanced', got {described(given)}."
    )


NO_RECIPE = Recipe()


def balanced_weights(train: Batches) -> Tensor:
    """Return N / (C n_c) for each class c, so that all classes weigh alike: (C,)."""
    with torch.random.fork_rng():
        labels = torch.cat([labels.cpu() for _, labels in checked_batches(train)])
    counts = labels.bincount()
    if (counts == 0).any():
        missing = int((counts == 0).nonzero()[0])
        raise UserError(f"expected examples of every class to balance, got none of {missing}.")
    return len(labels) / (len(counts) * counts.float())


def fast_forward(scheduler: LRScheduler, steps: int) -> None:
    """Bring a fresh schedule to where it was after some steps; learning rates stay as they are."""
    groups = scheduler.optimizer.param_groups
    rates = [group["lr"] for group in groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimiser has not stepped yet
        for _ in range(steps):
            scheduler.step()
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate


@dataclass(frozen=True, eq=False)
class ExampleLoss:
    """The base loss and how much each example counts: what a recipe and a batch say together.

    Args:
        loss: The base loss; None is the cross-entropy.
        smoothing: The fraction of each label that is spread evenly over all classes.
        class_weights: One factor per class, (C,); None counts all alike.
    """

    loss: BaseLoss | None = None
    smoothing: float = 0.0
    class_weights: Tensor | None = None

    def weights(self, labels: Tensor, own: Tensor | None) -> Tensor | None:
        """Return how much each example counts, (N,); None where all count alike."""
        if self.class_weights is None:
            return None if own is None else own.to(labels.device)
        if len(self.class_weights) <= int(labels.max()):
            raise UserError(
                f"expected one class weight per class, got {len(self.class_weights)} and the "
                f"label {int(labels.max())}."
            )
        chosen = self.class_weights.to(labels.device)[labels]
        return chosen if own is None else chosen * own.to(chosen)

    def check(self, classes: int, targets: Tensor | None) -> None:
        """Refuse class weights and distributions over another number of classes."""
        if self.class_weights is not None and len(self.class_weights) > classes:
            raise UserError(
                f"expected one class weight per class, {classes} as the model has outputs, got "
                f"{len(self.class_weights)}."
            )
        if targets is not None and targets.shape[1] != classes:
            raise UserError(
                f"expected soft labels over the model's {classes} classes, got distributions over "
                f"{targets.shape[1]}."
            )

    def values(self, logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the loss of each example: (N, C), (N,) or (N, C) -> (N,)."""
        if self.loss is not None:
            with _explain_loss_errors(logits, target):
                found = self.loss(logits, target)
            if not isinstance(found, Tensor) or found.shape != (len(logits),):
                raise UserError(
                    f"expected one loss per example, shape ({len(logits)},), from the loss given, "
                    f"got {described(found)}: use reduction='none'."
                )
            return found
        return nn.functional.cross_entropy(
            at_least_float32(logits),
            target.to(at_least_float32(logits)) if target.is_floating_point() else target,
            label_smoothing=max(smoothing, self.smoothing),
            reduction="none",
        )

    @property
    def is_plain(self) -> bool:
        """Whether it is the mean cross-entropy of all examples."""
        return self.loss is None and self.class_weights is None and self.smoothing == 0


PLAIN_LOSS = ExampleLoss()


def _explain_loss_errors(logits: Tensor, target: Tensor) -> AbstractContextManager[None]:
    """Turn an error of a loss that was given into ours, which says what it was given."""
    return explain_errors(
        lambda error: (
            f"the loss given failed on logits of shape {tuple(logits.shape)} and labels of shape "
            f"{tuple(target.shape)} and {target.dtype}: {error}. It is given a single logit as "
            "two, (N, 2)."
        )
    )


def check_step(optimizer: Optimizer) -> None:
    """Refuse an optimiser that computes the loss itself, several times per step."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise UserError(
            "expected an optimiser that steps by the gradients that are there, got "
            f"{type(optimizer).__name__}, which needs a closure: choose another, such as AdamW."
        )


def check_options(options: dict[str, Any]) -> Recipe:
    """Return the keywords of ``fit`` as a recipe; an unknown one is refused."""
    known = Recipe.__dataclass_fields__
    for name in options:
        if name not in known:
            raise UserError(f"fit takes {', '.join(known)}, got {name!r}.")
    return Recipe(**options)
