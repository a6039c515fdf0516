"""All that changes while a model is trained: weights, optimisers, records, and the position."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.errors import UserError
from falconcal.training.averaging import Average
from falconcal.training.history import EpochRecord
from falconcal.training.run_steps import Terms
from falconcal.training.selection import EpochSelector

RandomState = dict[str, Any]
Generators = tuple[torch.Generator, ...]


@dataclass
class TrainingState:
    """How far a training is; terms are summed as tensors, so that no step waits for a number."""

    model: nn.Module
    auxiliary: dict[str, nn.Module]  # networks that are trained beside the model
    optimizers: list[Optimizer]
    selector: EpochSelector | None = None
    average: Average | None = None
    generators: Generators = ()  # of the order of batches, where they have their own
    records: list[EpochRecord] = field(default_factory=list)  # one per finished epoch
    epoch: int = 1
    steps: int = 0  # done in this epoch
    batches: int = 0
    taken: int = 0  # steps since the start of training
    sums: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    start: RandomState | None = None  # random numbers at the start of the epoch
    resumed: RandomState | None = None  # and where a checkpoint was written

    @property
    def ended(self) -> bool:
        return bool(self.records and self.records[-1].ended)

    def begin_epoch(self) -> None:
        """Set the random numbers of the epoch's start, so that its batches come in that order."""
        if self.start is not None:
            set_random_state(self.start, self.generators)
            return
        self.restore_random_state()
        self.start = random_state(self.generators)

    def restore_random_state(self) -> None:
        """Set the random numbers of the moment when the checkpoint was written, if there is one."""
        if self.resumed is not None:
            set_random_state(self.resumed, self.generators)
            self.resumed = None

    def next_batch(self) -> int:
        """Return the number of the next batch in the epoch, from 0."""
        self.batches += 1
        return self.batches - 1

    def add(self, terms: Terms) -> None:
        """Count a step and add its terms to their sums."""
        self.steps += 1
        self.taken += 1
        for objective, values in terms.items():
            for term, value in values.items():
                name = f"{objective}/{term}"
                known = name in self.sums
                self.sums[name] = self.sums[name] + value if known else value
                self.counts[name] = self.counts[name] + 1 if known else 1

    def means(self) -> dict[str, float]:
        """Return the mean of every term, named objective/term."""
        if self.steps == 0:
            raise UserError("expected at least one batch, got none: is the loader empty?")
        means = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        for name, mean in means.items():
            if not math.isfinite(mean):
                raise UserError(
                    f"training diverged: {name} is {mean} in epoch {self.epoch}. "
                    "Lower the learning rates or the weights."
                )
        return means

    def finish_epoch(self, record: EpochRecord) -> None:
        """Keep the record of the epoch and stand at the start of the next."""
        self.records.append(record)
        self.epoch += 1
        self.steps, self.batches, self.sums, self.counts = 0, 0, {}, {}
        self.start = self.resumed = None


def random_state(generators: Generators = ()) -> RandomState:
    """Return the state of every source of random numbers that training or its data may use."""
    kind, keys, *rest = numpy.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
        "sources": [generator.get_state() for generator in generators],
        "numpy": [kind, numpy.asarray(keys).tolist(), *rest],
        "python": random.getstate(),
    }


def set_random_state(state: RandomState, generators: Generators = ()) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    # a new loader may have no generator
    for generator, kept in zip(generators, state["sources"], strict=False):
        generator.set_state(kept)
    numpy.random.set_state(tuple(state["numpy"]))
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
