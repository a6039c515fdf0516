"""Objectives, and the step they take together on a batch.

A method is a short ordered list of objectives, each with its own optimiser, each stepped once a
batch. When one keeps the gradient at the model's entrance, the next may use it: that is FALCON's
shared-gradient mode.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.data import Bounds
from falconcal.data.examples import check_labels
from falconcal.entrance import Entrance
from falconcal.errors import UserError
from falconcal.modes import channels_last, explained
from falconcal.predictions import check_logits


@dataclass(frozen=True)
class Processes:
    """The processes that train together, each on its part of every batch."""

    count: int = 1
    total: Callable[[Tensor], Tensor] = field(default=lambda value: value)  # over all processes
    rank: int = 0

    @classmethod
    def of(cls, fabric: Fabric) -> "Processes":
        if fabric.world_size == 1:
            return cls()

        def total(value: Tensor) -> Tensor:
            return fabric.all_reduce(value, reduce_op="sum")  # type: ignore[return-value]

        return cls(fabric.world_size, total, fabric.global_rank)

    def examples(self, parts: list[Tensor]) -> int:
        """Return how many examples the parts of this process and those of all others hold."""
        mine = sum(len(part) for part in parts)
        if self.count == 1:
            return mine
        return int(self.total(torch.tensor(mine, device=parts[0].device)))

    def span(self, part: Tensor) -> tuple[int, int]:
        """Return how many examples lie before this process's part of a batch, and in the whole."""
        if self.count == 1:
            return 0, len(part)
        sizes = torch.zeros(self.count, dtype=torch.long, device=part.device)
        sizes[self.rank] = len(part)
        sizes = self.total(sizes)
        return int(sizes[: self.rank].sum()), int(sizes.sum())


@dataclass(frozen=True)
class Companion:
    """A network that is trained beside the model, and given to nobody."""

    wrapped: nn.Module  # for training
    bare: nn.Module  # itself, for passes that no wrapper must see


@dataclass
class Step:
    """One batch as an objective sees it."""

    model: nn.Module  # as wrapped for training
    inputs: Tensor  # (N, ...)
    labels: Tensor  # (N,)
    epoch: int  # from 1
    epochs: int
    random: torch.Generator  # for this batch alone, the same in all processes
    classes: tuple[str, ...] | None = None
    bounds: Bounds | None = None  # of the inputs
    bare: nn.Module | None = None  # the model itself, for passes that no wrapper must see
    entrance: Entrance = field(default_factory=Entrance)
    processes: Processes = field(default_factory=Processes)
    companions: Mapping[str, Companion] = field(default_factory=dict)
    input_gradient: Tensor | None = None  # left by an objective that keeps it
    keeping: bool = False  # whether the clean pass must leave it
    kept_point: Tensor | None = None

    @property
    def itself(self) -> nn.Module:
        """The model without a wrapper."""
        return self.bare or self.model

    def trained(self, objective: "Objective") -> nn.Module:
        """Return the network whose weights an objective steps, as wrapped for training."""
        return self.companions[objective.trains].wrapped if objective.trains else self.model

    def logits(self) -> Tensor:
        """Return the model's output on the clean batch, checked: (N, C)."""
        if not self.keeping:
            with explained(self.inputs):
                return self._checked(self.model(self.inputs))
        self.kept_point = self.point()
        if self.kept_point.requires_grad:
            self.kept_point.retain_grad()
        self.kept_point.requires_grad_()
        with explained(self.inputs):
            return self._checked(self.entrance.run(self.model, self.inputs, self.kept_point))

    def logits_at(self, point: Tensor) -> Tensor:
        """Return the model's output with another point at its entrance: (N, C)."""
        if not self.entrance.moves_inputs and not point.requires_grad:
            # the value is the point, the gradient goes through to the embedding all the same
            clean = self.point()
            point = point + (clean - clean.detach())
        elif point.ndim == 4 and not point.requires_grad:
            point = channels_last(point)  # arithmetic does not keep the layout of grey images
        return self._checked(self.entrance.run(self.model, self.inputs, point))

    def point(self) -> Tensor:
        """Return what is continuous of the batch: its inputs, or the embedding of its tokens."""
        return self.entrance.point(self.inputs)

    def _checked(self, logits: Tensor) -> Tensor:
        check_logits(logits, len(self.inputs), len(self.classes) if self.classes else None)
        if self.epoch == 1:
            check_labels(self.labels, len(self.inputs), logits.shape[1])
        return logits


@dataclass(frozen=True)
class Objective:
    """Named terms whose sum is minimised with an optimiser of its own."""

    name: str
    terms: Callable[[Step], dict[str, Tensor]]
    optimizer: Callable[[list[nn.Parameter]], Optimizer]
    share: float = 1.0  # of the batches, chosen at random
    keeps_input_gradient: bool = False
    reduction: Literal["mean", "sum"] = "mean"  # of the terms, over the examples of a batch
    perturbs: bool = False  # whether it moves what enters the model
    sees_statistics: bool = True  # whether running statistics (BatchNorm) see its batches
    trains: str | None = None  # the companion whose weights it steps; None is the model


def annealed(weight: float, epoch: int, epochs: int, share: float) -> float:
    """Return the weight at an epoch, counted from 1: it rises linearly over a share of epochs."""
    return min(weight, weight * epoch / (share * epochs))


class Passes(Protocol):
    """Who runs backward passes, as Fabric does: it knows the precision and the processes."""

    def backward(self, tensor: Tensor) -> None: ...

    def clip_gradients(self, module: nn.Module, optimizer: Any, *, max_norm: float) -> object: ...


Terms = dict[str, dict[str, Tensor]]  # objective -> term -> value


def run_steps(
    fabric: Passes,
    steps: list[Step],
    objectives: list[Objective],
    optimizers: list[Any],
    clip_norm: float | None = None,
) -> Terms:
    """Step each objective that takes part once, over batches that count as one; return its terms.

    An example counts as much in any batch and any process, however many others are there. All is
    drawn from the first batch's random numbers.
    """
    shares = _shares(steps)
    drawn = [
        (objective, optimizer)
        for objective, optimizer in zip(objectives, optimizers, strict=True)
        if objective.share == 1 or torch.rand((), generator=steps[0].random) < objective.share
    ]
    terms: Terms = {}
    for place, (objective, optimizer) in enumerate(drawn):
        # an input gradient is worth its cost only if somebody after takes part
        keep = objective.keeps_input_gradient and place + 1 < len(drawn)
        optimizer.zero_grad(set_to_none=True)
        weights = shares if objective.reduction == "mean" else [1.0] * len(steps)
        weighted = list(zip(steps, weights, strict=True))
        parts = [_backward(fabric, step, objective, keep, weight) for step, weight in weighted]
        if clip_norm is not None:
            fabric.clip_gradients(steps[0].trained(objective), optimizer, max_norm=clip_norm)
        optimizer.step()
        terms[objective.name] = _together(parts, weights, steps[0].processes)
    return terms


def _shares(steps: list[Step]) -> list[float]:
    """Return each batch's share of the examples that all processes step on together."""
    labels = [step.labels for step in steps]
    whole = steps[0].processes.examples(labels)
    return [len(part) / whole for part in labels]


def _backward(
    fabric: Passes, step: Step, objective: Objective, keep: bool, weight: float
) -> dict[str, Tensor]:
    """Add one batch's gradient of an objective and return its terms."""
    step.keeping = keep
    share = weight * step.processes.count  # gradients are averaged over processes
    unseen = nullcontext() if objective.sees_statistics else unseen_statistics(step.model)
    with unseen, _enough_examples(len(step.labels)):
        terms = objective.terms(step)
        total = torch.stack(list(terms.values())).sum()
        fabric.backward(total if share == 1 else share * total)
    if keep and step.kept_point is not None:
        step.input_gradient, step.kept_point = step.kept_point.grad, None
        step.inputs.requires_grad_(False)
        step.inputs.grad = None
    return {name: term.detach() for name, term in terms.items()}


def _together(
    parts: list[dict[str, Tensor]], weights: list[float], processes: Processes
) -> dict[str, Tensor]:
    """Return the terms of the whole batch, all its parts in all processes."""
    if len(parts) == processes.count == 1:
        return parts[0]
    sums = {
        name: torch.stack(
            [weight * part[name] for part, weight in zip(parts, weights, strict=True)]
        ).sum()
        for name in parts[0]
    }
    return {name: processes.total(value) for name, value in sums.items()}


@contextmanager
def _enough_examples(count: int) -> Iterator[None]:
    """Say what to do where batch norm has but one example to norm by."""
    try:
        yield
    except ValueError as error:
        if count > 1 or "more than 1 value per channel" not in str(error):
            raise
        raise UserError(
            "expected at least 2 examples in every batch of a model with batch norm, got a batch "
            "of 1: choose another batch size, or drop the last batch (drop_last=True in a "
            "DataLoader)."
        ) from None


@contextmanager
def unseen_statistics(model: nn.Module) -> Iterator[None]:
    """Let what happens inside change copies of running statistics, not themselves.

    They are exchanged, not written back: a backward pass may yet ask whether they were written to.
    """
    layers = [layer for layer in model.modules() if getattr(layer, "track_running_stats", False)]
    kept = [(layer, *pair) for layer in layers for pair in layer.named_buffers(recurse=False)]
    for layer, name, buffer in kept:
        setattr(layer, name, buffer.clone())
    try:
        yield
    finally:
        for layer, name, buffer in kept:
            setattr(layer, name, buffer)
