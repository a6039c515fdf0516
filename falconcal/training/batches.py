"""Batches as training takes them: grouped into steps, and shared out among processes."""

from collections.abc import Iterable, Iterator

from lightning_fabric import Fabric
from torch import Generator, Tensor
from torch.utils.data import DataLoader

from falconcal.core.batch import checked_batches
from falconcal.data import Batches

Pair = tuple[Tensor, Tensor]


def accumulation_groups(batches: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    """Yield lists of batches that make one step together; the last may be shorter."""
    group: list[Pair] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def batches_of_process(batches: Batches, fabric: Fabric) -> Batches:
    """Return what this process walks through.

    A DataLoader gives every process batches of its own, so that no example is loaded twice and the
    global batch is that many times larger. Of any other batches each process takes its part: the
    global batch is the one that was given.
    """
    if fabric.world_size == 1:
        return batches
    if isinstance(batches, DataLoader):
        return fabric.setup_dataloaders(batches, move_to_device=False)  # type: ignore[return-value]
    return BatchSlices(batches, fabric.global_rank, fabric.world_size)


def own_generators(batches: Batches) -> tuple[Generator, ...]:
    """Return the sources of random numbers that a DataLoader was given for its order."""
    holders = (batches, getattr(batches, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return tuple({id(one): one for one in found if isinstance(one, Generator)}.values())


class BatchSlices:
    """One process's part of every batch; a batch too small to share is left out by all."""

    def __init__(self, batches: Batches, part: int, parts: int) -> None:
        self.whole, self.part, self.parts = batches, part, parts

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.whole, "set_epoch"):
            self.whole.set_epoch(epoch)

    def __iter__(self) -> Iterator[Pair]:
        for inputs, labels in checked_batches(self.whole):
            if len(inputs) >= self.parts:
                mine = (tensor.tensor_split(self.parts)[self.part] for tensor in (inputs, labels))
                yield tuple(mine)  # type: ignore[misc]
