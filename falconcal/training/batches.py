"""Batches as training takes them: grouped into steps, divided among processes, counted."""

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

import torch
from lightning_fabric import Fabric
from torch import Generator
from torch.utils.data import DataLoader, DistributedSampler

from falconcal.core.batch import Batch, check_reiterable, checked_batches
from falconcal.data import Batches
from falconcal.data.part import TensorBatches

One = TypeVar("One")  # a batch


def accumulation_groups(batches: Iterable[One], size: int) -> Iterator[list[One]]:
    """Yield lists of batches that make one step together; the last may be shorter."""
    group: list[One] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def batches_of_process(batches: Batches, fabric: Fabric) -> Batches:
    """Return the batches that this process iterates over.

    A DataLoader gives every process batches of its own, so that no example is loaded twice and the
    global batch is that many times larger. Of any other batches each process takes its part: the
    global batch is the one that was given.
    """
    if fabric.world_size == 1:
        return batches
    if isinstance(batches, DataLoader):
        return fabric.setup_dataloaders(batches, move_to_device=False)
    return BatchSlices(batches, fabric.global_rank, fabric.world_size)


def own_generators(batches: Batches) -> tuple[Generator, ...]:
    """Return the sources of random numbers that a DataLoader was given for its order."""
    holders = (batches, getattr(batches, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return tuple({id(one): one for one in found if isinstance(one, Generator)}.values())


def count_examples(train: Batches) -> int:
    """Return the number of examples of an epoch, over all processes.

    Batches that do not know their number of examples are iterated over once.
    """
    if isinstance(train, TensorBatches):
        return len(train.examples)
    if isinstance(train, DataLoader):
        # with a batch sampler of the user's own, torch keeps an unused sampler of all examples
        sampler = getattr(train.batch_sampler, "sampler", None)
        chosen = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
        if isinstance(chosen, Sized):
            return len(chosen)
    with torch.random.fork_rng():
        check_reiterable(train, "training")
        return sum(len(labels) for _, labels in checked_batches(train))


class BatchSlices:
    """One process's part of every batch; all processes skip a batch that is too small to divide."""

    def __init__(self, batches: Batches, part: int, parts: int) -> None:
        self.whole, self.part, self.parts = batches, part, parts

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.whole, "set_epoch"):
            self.whole.set_epoch(epoch)

    def __iter__(self) -> Iterator[Batch]:
        for batch in checked_batches(self.whole):
            if len(batch[1]) >= self.parts:
                yield batch.split(self.parts)[self.part]
