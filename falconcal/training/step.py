"""One batch as objectives see it, and the one function that makes it.

The built-in loop, ``FalconStep`` and Lightning each have a ``StepContext`` and make every step of a
training from it by ``make_step``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from falconcal.core.batch import Batch
from falconcal.core.layout import has_channels_last, to_channels_last
from falconcal.core.model_inputs import Inputs, call_model, main_of, map_inputs
from falconcal.core.module_state import explain_model_errors, layers_with_statistics
from falconcal.core.perturbation_point import PerturbationPoint
from falconcal.core.randomness import combined_seed
from falconcal.data import Batches, Bounds
from falconcal.data.input_checks import check_inputs, check_labels
from falconcal.errors import UserError
from falconcal.models.predict import check_logits
from falconcal.training.losses import cross_entropy
from falconcal.training.recipe import PLAIN_LOSS, ExampleLoss

StatedBounds = Bounds | Literal["data"] | None


@dataclass(frozen=True)
class TrainingProcesses:
    """The processes that train together, each on its part of every batch."""

    count: int = 1
    total: Callable[[Tensor], Tensor] = field(default=lambda value: value)  # over all processes
    rank: int = 0

    @classmethod
    def of(cls, fabric: Fabric) -> "TrainingProcesses":
        if fabric.world_size == 1:
            return cls()

        def total(value: Tensor) -> Tensor:
            return fabric.all_reduce(value, reduce_op="sum")  # type: ignore[return-value]

        return cls(fabric.world_size, total, fabric.global_rank)

    def examples(self, parts: list[Tensor]) -> int:
        """Return the number of examples in the parts of all processes."""
        mine = sum(len(part) for part in parts)
        if self.count == 1:
            return mine
        return int(self.total(torch.tensor(mine, device=parts[0].device)))

    def span(self, part: Inputs) -> tuple[int, int]:
        """Return the number of examples before this process's part, and in the whole batch."""
        if self.count == 1:
            return 0, len(part)
        sizes = torch.zeros(self.count, dtype=torch.long, device=part.device)
        sizes[self.rank] = len(part)
        sizes = self.total(sizes)
        return int(sizes[: self.rank].sum()), int(sizes.sum())


@dataclass(frozen=True)
class AuxiliaryNetwork:
    """A network that is trained beside the model and not returned by ``fit``."""

    wrapped: nn.Module  # for training
    unwrapped: nn.Module  # for passes that no wrapper must see


@dataclass
class Step:
    """One batch as an objective sees it.

    An objective calls ``logits`` for the clean batch, or ``logits_at`` with a perturbed ``point``,
    and draws from ``random``. ``make_step`` makes one per batch.

    Args:
        model: The model as wrapped for training.
        inputs: The inputs of the batch, (N, ...).
        labels: Their classes, (N,).
        epoch: The epoch, counted from 1.
        epochs: The number of epochs of the training.
        random: Random numbers for this batch alone, the same in all processes.
        classes: Names of the classes, where the data has them.
        bounds: The range of the inputs; None where it is not known.
        unwrapped_model: The model without a wrapper; None stands for ``model``.
        perturbation_point: Where inputs are perturbed: as they come, or at the embedding.
        processes: The processes that train together.
        auxiliary: The networks that are trained beside the model, by name.
        training_examples: The number of training examples, where an objective needs it.
        input_gradient: The gradient at the point, left by an objective that keeps it.
        keep_input_gradient: Whether the clean pass must leave that gradient.
        kept_point: The point of the clean pass whose gradient is kept.
        weights: How much each example counts, (N,); None counts all alike.
        targets: The labels as distributions, (N, C), where they are soft.
        base_loss: The loss of one example; the cross-entropy unless another was given.
        statistics: The layers of the model that gather running statistics; None looks for them.
        images_last: Whether images are given with channels last, as the model's weights are.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from falconcal.training import Step
        >>> step = Step(nn.Linear(4, 3), torch.rand(5, 4), torch.arange(5) % 3, 1, 20,
        ...             torch.Generator().manual_seed(0))
        >>> step.logits().shape
        torch.Size([5, 3])
    """

    model: nn.Module
    inputs: Any  # (N, ...), one tensor, or several: ModelInputs
    labels: Tensor  # (N,)
    epoch: int
    epochs: int
    random: torch.Generator
    classes: tuple[str, ...] | None = None
    bounds: Bounds | None = None
    unwrapped_model: nn.Module | None = None
    perturbation_point: PerturbationPoint = field(default_factory=PerturbationPoint)
    processes: TrainingProcesses = field(default_factory=TrainingProcesses)
    auxiliary: Mapping[str, AuxiliaryNetwork] = field(default_factory=dict)
    training_examples: int | None = None
    input_gradient: Tensor | None = None
    keep_input_gradient: bool = False
    kept_point: Tensor | None = None
    weights: Tensor | None = None  # (N,)
    targets: Tensor | None = None  # (N, C)
    base_loss: ExampleLoss = PLAIN_LOSS
    statistics: tuple[nn.Module, ...] | None = None
    images_last: bool = False

    @property
    def layers_with_statistics(self) -> tuple[nn.Module, ...]:
        """The layers of the model that gather running statistics."""
        return layers_with_statistics(self.model) if self.statistics is None else self.statistics

    @property
    def unwrapped(self) -> nn.Module:
        """The model without a wrapper, for passes that no wrapper must see."""
        return self.unwrapped_model or self.model

    def trained(self, network: str | None) -> nn.Module:
        """Return an auxiliary network by name, or the model, as wrapped for training."""
        return self.model if network is None else self.auxiliary[network].wrapped

    def logits(self) -> Tensor:
        """Return the model's output on the clean batch, checked: (N, C)."""
        if not self.keep_input_gradient:
            with explain_model_errors(self.inputs):
                return self._checked(call_model(self.model, self.inputs))
        self.kept_point = self.point()
        if self.kept_point.requires_grad:
            self.kept_point.retain_grad()
        self.kept_point.requires_grad_()
        with explain_model_errors(self.inputs):
            return self._checked(
                self.perturbation_point.run(self.model, self.inputs, self.kept_point)
            )

    def logits_at(self, point: Tensor) -> Tensor:
        """Return the model's output with another point at its perturbation point: (N, C).

        Places that a mask of the batch hides, and padding, stay as they are.
        """
        point = self.perturbation_point.kept(self.inputs, point)
        if not self.perturbation_point.moves_inputs and not point.requires_grad:
            # the value is the point's, and the gradient still reaches the embedding
            clean = self.point()
            point = point + (clean - clean.detach())
        elif self.images_last and not point.requires_grad:
            point = to_channels_last(point)  # arithmetic does not keep that of grey images
        return self._checked(self.perturbation_point.run(self.model, self.inputs, point))

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over examples of values (N,), each times the weight of its example."""
        return values.mean() if self.weights is None else (self.weights * values).mean()

    def cross_entropy(
        self, logits: Tensor, rows: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """Return the mean base loss of logits, the cross-entropy unless another was given.

        Args:
            logits: Outputs of the model, (N, C).
            rows: Whose labels count, (N,), where they are not the examples' own.
            smoothing: The fraction of each label that is spread evenly over all classes.

        Returns:
            A scalar with a gradient.
        """
        target = self.labels if self.targets is None else self.targets
        target = target if rows is None else target[rows]
        if self.base_loss.is_plain and self.weights is None and self.targets is None:
            return cross_entropy(logits, target, smoothing)
        return self.mean(self.base_loss.values(logits, target, smoothing))

    def point(self) -> Tensor:
        """Return the continuous form of the batch: its inputs, or the embedding of its tokens."""
        return self.perturbation_point.point(self.inputs)

    def _checked(self, logits: Tensor) -> Tensor:
        check_logits(logits, len(self.inputs), len(self.classes) if self.classes else None)
        if self.epoch == 1:
            self.base_loss.check(logits.shape[1], self.targets)
            check_labels(self.labels, len(self.inputs), logits.shape[1])
        return logits


@dataclass(frozen=True)
class StepContext:
    """What all steps of a training have in common."""

    model: nn.Module
    wrapped: nn.Module  # the model, for training
    seed: int
    convert: Callable[[Inputs], Inputs] = field(default=lambda inputs: inputs)  # as training needs
    classes: tuple[str, ...] | None = None
    bounds: Bounds | None = None
    perturbation_point: PerturbationPoint = field(default_factory=PerturbationPoint)
    processes: TrainingProcesses = field(default_factory=TrainingProcesses)
    auxiliary: Mapping[str, AuxiliaryNetwork] = field(default_factory=dict)
    training_examples: int | None = None
    base_loss: ExampleLoss = PLAIN_LOSS

    @cached_property
    def statistics(self) -> tuple[nn.Module, ...]:
        """The layers of the model that gather running statistics, looked for once."""
        return layers_with_statistics(self.model)

    @cached_property
    def images_last(self) -> bool:
        """Whether images are given with channels last, as the weights are stored."""
        return has_channels_last(self.model)

    def as_leaf(self, tensor: Tensor) -> Tensor:
        """Return a tensor of a batch as a fresh leaf, images in the layout of the weights."""
        return (to_channels_last(tensor) if self.images_last else tensor).detach()


def make_step(context: StepContext, batch: Batch, epoch: int, epochs: int, index: int) -> Step:
    """Return the step of a batch, which is number ``index`` of its epoch, from 0."""
    inputs, labels = batch
    inputs = map_inputs(context.as_leaf, context.convert(inputs))
    labels = labels.to(inputs.device).long()
    return Step(
        model=context.wrapped,
        inputs=inputs,
        labels=labels,
        epoch=epoch,
        epochs=epochs,
        random=batch_random(context.seed, epoch, index),
        classes=context.classes,
        bounds=context.bounds,
        unwrapped_model=context.model,
        perturbation_point=context.perturbation_point,
        processes=context.processes,
        auxiliary=context.auxiliary,
        training_examples=context.training_examples,
        weights=context.base_loss.weights(labels, batch.weights),
        targets=None if batch.targets is None else batch.targets.to(labels.device),
        base_loss=context.base_loss,
        statistics=context.statistics,
        images_last=context.images_last,
    )


def batch_random(seed: int, epoch: int, index: int) -> torch.Generator:
    """Return the random numbers of one batch, the same in every loop that trains it."""
    return torch.Generator().manual_seed(combined_seed(seed, epoch, index))


def bounds_of(batches: Batches, stated: StatedBounds, inputs: Inputs) -> Bounds | None:
    """Return the bounds stated, or those that travel with the data; tokens have none."""
    if stated != "data":
        return stated
    if not hasattr(batches, "bounds"):
        if not inputs.is_floating_point():
            return None
        raise UserError(
            "the range of the inputs is not known: state it once, as bounds=Bounds(0, 1), "
            "or bounds=None to leave perturbed inputs unclipped."
        )
    bounds: Bounds | None = batches.bounds
    return bounds


def check_batch(inputs: Inputs, labels: Tensor, bounds: Bounds | None = None) -> None:
    """Check a batch before it fails with an unclear error or is silently clipped."""
    check_inputs(inputs)
    if bounds is not None:
        bounds.check(main_of(inputs))
    if (labels < 0).any():
        raise UserError("training needs a true class for every example, got labels below 0.")
