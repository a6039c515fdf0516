"""Stepping objectives over batches that count as one step."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce
from operator import add
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import main_of
from falconcal.errors import UserError
from falconcal.training.fused_kernels import forget_gradients, take_step
from falconcal.training.objectives import Objective
from falconcal.training.step import Step, TrainingProcesses


class BackwardEngine(Protocol):
    """What runs backward passes, as Fabric does: it knows the precision and the processes."""

    def backward(self, tensor: Tensor) -> None: ...

    def clip_gradients(self, module: nn.Module, optimizer: Any, *, max_norm: float) -> object: ...


Terms = dict[str, dict[str, Tensor]]  # objective -> term -> value


def run_steps(
    engine: BackwardEngine,
    steps: list[Step],
    objectives: list[Objective],
    optimizers: list[Any],
    clip_norm: float | None = None,
) -> Terms:
    """Step each objective that takes part once, over batches that count as one; return its terms.

    Every example has the same weight, whatever the sizes of the batches and of the processes'
    parts. Which objectives take part is drawn from the first batch's random numbers.
    """
    fractions = _fractions(steps)
    pairs = zip(objectives, optimizers, strict=True)
    drawn = [pair for pair in pairs if _takes_part(pair[0], steps[0])]
    terms: Terms = {}
    for number, (objective, optimizer) in enumerate(drawn, 1):
        # an input gradient is worth its cost only if another objective follows
        keep = objective.keeps_input_gradient and number < len(drawn)
        forget_gradients(optimizer)
        weights = fractions if objective.reduction == "mean" else [1.0] * len(steps)
        weighted = list(zip(steps, weights, strict=True))
        parts = [_backward(engine, step, objective, keep, weight) for step, weight in weighted]
        if clip_norm is not None:
            network = steps[0].trained(objective.network)
            engine.clip_gradients(network, optimizer, max_norm=clip_norm)
        take_step(optimizer)
        terms[objective.name] = _combined(parts, weights, steps[0].processes)
    return terms


def _takes_part(objective: Objective, step: Step) -> bool:
    """Return whether an objective is stepped on a batch; one that always is draws no number."""
    fraction = objective.batch_fraction
    return fraction == 1 or bool(torch.rand((), generator=step.random) < fraction)


def _fractions(steps: list[Step]) -> list[float]:
    """Return each batch's fraction of the examples that all processes step on together."""
    labels = [step.labels for step in steps]
    whole = steps[0].processes.examples(labels)
    return [len(part) / whole for part in labels]


def _backward(
    engine: BackwardEngine, step: Step, objective: Objective, keep: bool, weight: float
) -> dict[str, Tensor]:
    """Add one batch's gradient of an objective and return its terms."""
    step.keep_input_gradient = keep
    scale = weight * step.processes.count  # gradients are averaged over processes
    seen = objective.updates_running_statistics
    with (
        nullcontext() if seen else unseen_statistics(step.layers_with_statistics),
        _explain_single_example(len(step.labels)),
    ):
        terms = objective.terms(step)
        total = reduce(add, terms.values())
        engine.backward(total if scale == 1 else scale * total)
    if keep and step.kept_point is not None:
        step.input_gradient, step.kept_point = step.kept_point.grad, None
        main = main_of(step.inputs)
        main.requires_grad_(False)
        main.grad = None
    return {name: term.detach() for name, term in terms.items()}


def _combined(
    parts: list[dict[str, Tensor]], weights: list[float], processes: TrainingProcesses
) -> dict[str, Tensor]:
    """Return the terms of the whole batch: all its parts in all processes."""
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
def _explain_single_example(count: int) -> Iterator[None]:
    """Say what to do when batch norm gets a batch of one example."""
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
def unseen_statistics(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Keep running statistics (BatchNorm) as they are, whatever happens inside.

    The passes inside change copies. The originals are put back as objects, not written to: a later
    backward pass checks that they were not modified. ``layers`` are ``layers_with_statistics``.
    """
    kept = [(layer, *pair) for layer in layers for pair in layer.named_buffers(recurse=False)]
    for layer, name, buffer in kept:
        setattr(layer, name, buffer.clone())
    try:
        yield
    finally:
        for layer, name, buffer in kept:
            setattr(layer, name, buffer)
