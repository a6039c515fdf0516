"""The one training loop, on Lightning Fabric.

A method is a short ordered list of objectives, each with its own optimiser, each stepped once a
batch. The loop knows nothing else: it walks epochs and batches, steps the objectives, records
their terms, and keeps the epoch that a judge likes best, where there is one.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import polars
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.data import Batches, Bounds
from falconcal.data.examples import (
    check_inputs,
    check_labels,
    check_walkable,
    mixed_seed,
    pairs,
)
from falconcal.errors import UserError
from falconcal.metrics import accuracy
from falconcal.predictions import Predictions, check_logits, predict
from falconcal.selection import EpochKeeper
from falconcal.settings import Count, LearningRate, Seed, Share, Weight, settings

logger = logging.getLogger("falconcal.training")

Precision = Literal["32-true", "16-mixed", "bf16-mixed", "64-true"]


@settings
class Training:
    """What every training method can be told."""

    epochs: Count = 20
    learning_rate: LearningRate = 1e-3
    l2_weight: Weight = 0.0  # times the sum of squared dense weights
    dropout: Share | None = None  # probability for every nn.Dropout; None leaves the model's own
    seed: Seed = 0
    keep: Literal["last", "best"] = "last"  # which epoch; best by the validation criterion
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Precision = "32-true"


@dataclass
class Step:
    """One batch as an objective sees it."""

    model: nn.Module
    inputs: Tensor  # (N, ...)
    labels: Tensor  # (N,)
    epoch: int  # from 1
    epochs: int
    random: torch.Generator  # for this batch alone
    classes: tuple[str, ...] | None = None
    input_gradient: Tensor | None = None  # left by an objective that keeps it

    def logits(self, inputs: Tensor) -> Tensor:
        """Return the model's output on inputs of this batch, its shape checked: (N, C)."""
        logits: Tensor = self.model(inputs)
        check_logits(logits, len(inputs), len(self.classes) if self.classes else None)
        if self.epoch == 1:
            check_labels(self.labels, len(inputs), logits.shape[1])
        return logits


@dataclass(frozen=True)
class Objective:
    """Named terms whose sum is minimised with an optimiser of its own."""

    name: str
    terms: Callable[[Step], dict[str, Tensor]]
    optimizer: Callable[[list[nn.Parameter]], Optimizer]
    share: float = 1.0  # of the batches, chosen at random
    keeps_input_gradient: bool = False


@dataclass(frozen=True)
class EpochRecord:
    """What happened in an epoch: the mean of every term, named objective/term."""

    epoch: int  # from 1
    epochs: int
    terms: dict[str, float]
    validation: dict[str, float] = field(default_factory=dict)
    kept: int | None = None  # with the last record: the epoch whose weights were kept, if chosen


class History(list[EpochRecord]):
    """A list that fills itself: ``with history.recording(): method.fit(...)``."""

    @contextmanager
    def recording(self) -> Iterator["History"]:
        with watching(self.append):
            yield self

    def table(self) -> polars.DataFrame:
        """Return the terms and validation figures as rows of epoch, term and value."""
        rows = [
            (record.epoch, name, value)
            for record in self
            for name, value in (*record.terms.items(), *_prefixed(record.validation))
        ]
        schema = {"epoch": polars.Int64, "term": polars.String, "value": polars.Float64}
        return polars.DataFrame(rows, schema=schema, orient="row")


def _prefixed(validation: dict[str, float]) -> list[tuple[str, float]]:
    return [(f"validation/{name}", value) for name, value in validation.items()]


Watcher = Callable[[EpochRecord], None]
_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call ``watcher`` with a record after every epoch trained inside the ``with``."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def annealed(weight: float, epoch: int, epochs: int, share: float) -> float:
    """Return the weight at an epoch, counted from 1: it rises linearly over a share of epochs."""
    return min(weight, weight * epoch / (share * epochs))


def fit_objectives(
    model: nn.Module,
    train: Batches,
    validation: Batches,
    objectives: list[Objective],
    training: Training,
    bounds: Bounds | None = None,
) -> nn.Module:
    """Train the model in place, keep the epoch asked for, and return it in inference mode."""
    with _seeded(training.seed):  # walking through a DataLoader draws random numbers too
        check_walkable(train, "training")
        check_walkable(validation, "validation")
        if training.dropout is not None:
            set_dropout(model, training.dropout)
        best = training.keep == "best"
        keeper = EpochKeeper(validation, training.epochs, bounds) if best else None
        fabric = Fabric(accelerator=training.accelerator, devices=1, precision=training.precision)
        _train_epochs(fabric, model, train, objectives, training, keeper)
        if keeper is not None:
            model.load_state_dict(keeper.best().weights)
        warn_if_collapsed(predict(model, validation))
    return model.eval()


def _train_epochs(
    fabric: Fabric,
    model: nn.Module,
    batches: Batches,
    objectives: list[Objective],
    training: Training,
    keeper: EpochKeeper | None,
) -> None:
    _lay_out_weights(model)
    parameters = [weight for weight in model.parameters() if weight.requires_grad]
    if not parameters:
        raise UserError("expected weights to train, got a model whose every weight is frozen.")
    optimizers = [objective.optimizer(parameters) for objective in objectives]
    wrapped, *stepped = fabric.setup(model, *optimizers)
    for epoch in range(1, training.epochs + 1):
        model.train()
        terms = _train_epoch(fabric, wrapped, batches, objectives, stepped, training, epoch)
        judgement = keeper.judge(model, epoch) if keeper is not None else {}
        last = epoch == training.epochs
        kept = keeper.best().epoch if last and keeper is not None else None
        _announce(EpochRecord(epoch, training.epochs, terms, judgement, kept))


def _train_epoch(
    fabric: Fabric,
    model: nn.Module,
    batches: Batches,
    objectives: list[Objective],
    optimizers: list[Any],
    training: Training,
    epoch: int,
) -> dict[str, float]:
    """Step through the batches once and return the mean of every term."""
    if hasattr(batches, "set_epoch"):
        batches.set_epoch(epoch)
    means = _Means()
    for index, (inputs, labels) in enumerate(pairs(batches)):
        if epoch == 1:
            _check_batch(inputs, labels)
        step = Step(
            model=model,
            inputs=_laid_out(fabric.to_device(inputs)),
            labels=fabric.to_device(labels),
            epoch=epoch,
            epochs=training.epochs,
            random=_generator(training.seed, epoch, index),
            classes=getattr(batches, "classes", None),
        )
        means.batches += 1
        for name, terms in run_batch(fabric, step, objectives, optimizers):
            means.add(name, terms)
    return means.result(epoch)


def run_batch(
    fabric: Fabric, step: Step, objectives: list[Objective], optimizers: list[Any]
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Step the objectives that take part in this batch, in order; yield their names and terms."""
    drawn = [
        (objective, optimizer)
        for objective, optimizer in zip(objectives, optimizers, strict=True)
        if objective.share == 1 or torch.rand((), generator=step.random) < objective.share
    ]
    for place, (objective, optimizer) in enumerate(drawn):
        # an input gradient is worth its cost only if somebody after takes part
        keep = objective.keeps_input_gradient and place + 1 < len(drawn)
        yield objective.name, _run_objective(fabric, step, objective, optimizer, keep)


def _run_objective(
    fabric: Fabric, step: Step, objective: Objective, optimizer: Optimizer, keep: bool
) -> dict[str, Tensor]:
    """Take one objective's step on one batch and return its terms."""
    if keep:
        check_continuous(step.inputs)
    step.inputs.requires_grad_(keep)
    optimizer.zero_grad(set_to_none=True)
    terms = objective.terms(step)
    fabric.backward(torch.stack(list(terms.values())).sum())
    optimizer.step()
    if keep:
        step.input_gradient, step.inputs.grad = step.inputs.grad, None
    return {name: term.detach() for name, term in terms.items()}


def check_continuous(inputs: Tensor) -> None:
    """Refuse to perturb whole numbers."""
    if not inputs.is_floating_point():
        raise UserError(
            f"expected floating-point inputs to perturb, got {inputs.dtype}: convert them, for "
            "example with inputs.float()."
        )


def set_dropout(model: nn.Module, probability: float) -> None:
    """Give every dropout layer of the model this probability."""
    kinds = nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout
    layers = [layer for layer in model.modules() if isinstance(layer, kinds)]
    if not layers and probability > 0:
        raise UserError(
            f"dropout={probability} needs a model with nn.Dropout layers, found none: add them, "
            "or leave dropout=None."
        )
    for layer in layers:
        layer.p = probability


def bounds_of(batches: Batches, stated: Bounds | Literal["data"] | None) -> Bounds | None:
    """Return the bounds stated, or those that travel with the data."""
    if stated != "data":
        return stated
    if not hasattr(batches, "bounds"):
        raise UserError(
            "the range of the inputs is not known: state it once, as bounds=Bounds(0, 1), "
            "or bounds=None to leave perturbed inputs unclipped."
        )
    bounds: Bounds | None = batches.bounds
    return bounds


class _Means:
    """Running means of named terms, kept as tensors so that no step waits for a number."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.batches = 0

    def add(self, objective: str, terms: dict[str, Tensor]) -> None:
        for term, value in terms.items():
            name = f"{objective}/{term}"
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def result(self, epoch: int) -> dict[str, float]:
        if self.batches == 0:
            raise UserError("expected at least one batch, got none: is the loader empty?")
        means = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        for name, mean in means.items():
            if not math.isfinite(mean):
                raise UserError(
                    f"training diverged: {name} is {mean} in epoch {epoch}. "
                    "Lower the learning rates or the weights."
                )
        return means


def _check_batch(inputs: Tensor, labels: Tensor) -> None:
    """Refuse in the first epoch what would fail later with a riddle."""
    check_inputs(inputs)
    if (labels < 0).any():
        raise UserError("training needs a true class for every example, got labels below 0.")


def _lay_out_weights(model: nn.Module) -> None:
    """Lay convolution weights out with channels last, as the images are."""
    for weight in model.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)


def _laid_out(inputs: Tensor) -> Tensor:
    """Return a fresh leaf, images with channels last: convolutions on CPUs run faster so."""
    if inputs.ndim == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs.detach()


def _generator(seed: int, epoch: int, index: int) -> torch.Generator:
    return torch.Generator().manual_seed(mixed_seed(seed, epoch, index))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch inside the ``with``; outside, the caller's random state goes on undisturbed."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def _announce(record: EpochRecord) -> None:
    logger.info("epoch %d of %d: %s", record.epoch, record.epochs, record.terms)
    for watcher in _watchers.get():
        watcher(record)


def warn_if_collapsed(predictions: Predictions) -> None:
    """Say so when a trained model does no better than always giving the commonest class."""
    if (predictions.labels < 0).any():
        return  # nothing is known of some of them
    chance = int(predictions.labels.bincount().max()) / len(predictions)
    if accuracy(predictions) > chance + 0.05 or chance > 0.9:
        return
    warnings.warn(
        f"training collapsed or hardly began: validation accuracy {accuracy(predictions):.3f}, "
        f"where always answering the commonest class gives {chance:.3f}. A model that knows "
        "nothing can look calibrated; train longer, or lower the weights or the learning rates.",
        CollapseWarning,
        stacklevel=4,
    )


class CollapseWarning(UserWarning):
    """Training ended with a model that knows nothing."""
