"""Data divided among processes so that every example is predicted once, by one of them.

A distributed sampler repeats examples until all processes have equally many, which is harmless in
training and wrong in a measurement. Here the processes take whole batches in turn: the same batches
as in one process give the same bits.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from falconcal.core import distributed
from falconcal.core.batch import USUAL_FORM, Batch, Batches, checked_batches
from falconcal.core.model_inputs import Inputs
from falconcal.data.part import PREDICTION_BATCH_SIZE, Part
from falconcal.errors import UserError


class RoundRobin:
    """Gives batches to the processes in turn, and keeps the positions of this one's examples."""

    def __init__(self, single_process: bool = False) -> None:
        self.rank, self.count = (
            (0, 1) if single_process else (distributed.rank(), distributed.world_size())
        )
        self.batches, self.examples = 0, 0  # given out so far
        self.positions: list[Tensor] = []  # of this process's examples in all the data

    def is_mine(self, size: int) -> bool:
        """Return whether the next batch, of ``size`` examples, is for this process."""
        mine = self.batches % self.count == self.rank
        if mine:
            self.positions.append(torch.arange(self.examples, self.examples + size))
        self.batches, self.examples = self.batches + 1, self.examples + size
        return mine

    def in_order(self, rows: Tensor | None) -> Tensor:
        """Return the rows of all processes in the order of the data: (N_p, K) -> (N, K)."""
        if self.count == 1:
            return torch.empty(0, 0) if rows is None else rows
        positions = torch.cat(self.positions)[:, None] if self.positions else None
        order = torch.cat(distributed.gather_rows(positions)).flatten().argsort()
        return torch.cat(distributed.gather_rows(rows))[order]

    def check_same(self, inputs: Inputs, labels: Tensor) -> None:
        """Refuse data that is not the same in all processes."""
        if self.count > 1:
            distributed.check_same(distributed.fingerprint(inputs, labels))


class Shard:
    """This process's share of batches that are the same in all of them."""

    def __init__(self, batches: Any) -> None:
        self.batches, self.turns = batches, RoundRobin()
        self.classes = getattr(batches, "classes", None)
        self.form = getattr(batches, "form", USUAL_FORM)
        self.fingerprint = 0  # of the batches, which must be the same in all processes

    def __iter__(self) -> Iterator[Batch]:
        for inputs, labels in checked_batches(self.batches):
            self.fingerprint = distributed.fingerprint(inputs, labels, self.fingerprint)
            if self.turns.is_mine(len(labels)):
                yield Batch(inputs, labels)

    def gathered(self, rows: Tensor | None) -> Tensor:
        """Return the rows of all processes in the order of the data: (N_p, K) -> (N, K)."""
        distributed.check_same(self.fingerprint)
        return self.turns.in_order(rows)


class LoaderShard(Shard):
    """The share of an ordinary DataLoader: no example is loaded by two processes."""

    def __iter__(self) -> Iterator[Batch]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # a loader that shuffles does so alike in all processes
            chosen = [list(batch) for batch in self.batches.batch_sampler]
        self.fingerprint = zlib.crc32(repr(chosen).encode())
        mine = [batch for batch in chosen if self.turns.is_mine(len(batch))]
        yield from checked_batches(_loader_of(self.batches, mine))


class SamplerShard(Shard):
    """The share that a distributed sampler gives, without the examples it repeats."""

    def __iter__(self) -> Iterator[Batch]:
        sampler, start = self.batches.sampler, 0
        for inputs, labels in checked_batches(self.batches):
            numbers = torch.arange(start, start + len(labels))
            positions = sampler.rank + sampler.num_replicas * numbers
            real = positions < len(sampler.dataset)
            start += len(labels)
            if real.any():
                self.turns.positions.append(positions[real])
                yield Batch(inputs[real.to(labels.device)], labels[real.to(labels.device)])


def shard_of(data: Batches | Part) -> Shard:
    """Return the share of this process, by the kind of the data."""
    sampler = getattr(data, "sampler", None)
    if isinstance(sampler, DistributedSampler):
        _check_sampler(sampler)
        return SamplerShard(data)
    if _plain_loader(data):
        return LoaderShard(data)
    return Shard(data.batches(PREDICTION_BATCH_SIZE) if isinstance(data, Part) else data)


def _plain_loader(data: object) -> bool:
    """Return whether a loader can be rebuilt with batches of our choice."""
    return (
        type(data) is DataLoader
        and data.batch_sampler is not None
        and not isinstance(data.dataset, IterableDataset)
    )


def _loader_of(loader: Any, batches: list[list[Any]]) -> Any:
    """Return the loader for only these batches of example numbers."""
    names = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
             "multiprocessing_context", "prefetch_factor")  # fmt: skip
    kept = {name: getattr(loader, name) for name in names}
    return DataLoader(loader.dataset, batch_sampler=batches, **kept)


def _check_sampler(sampler: "DistributedSampler[Any]") -> None:
    own = (sampler.rank, sampler.num_replicas)
    if own != (distributed.rank(), distributed.world_size()) or sampler.drop_last:
        raise UserError(
            f"expected a distributed sampler of process {distributed.rank()} among "
            f"{distributed.world_size()} that leaves nothing out, got {own[0]} among {own[1]}, "
            f"drop_last={sampler.drop_last}: pass a loader without a sampler, it is divided here."
        )
