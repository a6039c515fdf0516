"""How far a training is: the epoch, the batches done in it, and the sums of their terms."""

import math
import random
from typing import Any

import numpy
import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.training.objectives import Terms

RandomState = dict[str, Any]
Sources = tuple[torch.Generator, ...]


class TrainingPosition:
    """A place in a training; terms are summed as tensors, so that no step waits for a number."""

    def __init__(self, epoch: int, sources: Sources = ()) -> None:
        self.epoch = epoch  # from 1
        self.sources = sources  # of the order of batches, where they have their own
        self.steps, self.batches = 0, 0  # done in this epoch
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.start: RandomState | None = None  # random numbers at the start of the epoch
        self.resumed: RandomState | None = None  # and where a checkpoint was written

    def begin(self) -> None:
        """Stand where the epoch began, so that its batches come in the same order again."""
        if self.start is not None:
            set_random_state(self.start, self.sources)
            return
        self.go_on()
        self.start = random_state(self.sources)

    def go_on(self) -> None:
        """Stand where the checkpoint was written, if there is one."""
        if self.resumed is not None:
            set_random_state(self.resumed, self.sources)
            self.resumed = None

    def next_batch(self) -> int:
        """Return the number of the next batch in the epoch, from 0."""
        self.batches += 1
        return self.batches - 1

    def add(self, terms: Terms) -> None:
        self.steps += 1
        for objective, values in terms.items():
            for term, value in values.items():
                name = f"{objective}/{term}"
                self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
                self.counts[name] = self.counts.get(name, 0) + 1

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


def random_state(sources: Sources = ()) -> RandomState:
    """Return the state of every source of random numbers that training or its data may use."""
    kind, keys, *rest = numpy.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
        "sources": [source.get_state() for source in sources],
        "numpy": [kind, numpy.asarray(keys).tolist(), *rest],
        "python": random.getstate(),
    }


def set_random_state(state: RandomState, sources: Sources = ()) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    for source, kept in zip(sources, state["sources"], strict=False):  # a new loader may have none
        source.set_state(kept)
    numpy.random.set_state(tuple(state["numpy"]))
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
