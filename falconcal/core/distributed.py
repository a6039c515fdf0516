"""Processes that work together: the number of this one, and exchange between all of them.

There are several when torchrun or Fabric started them and joined them to a group. They exchange
tensors, never pickles.
"""

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import _get_default_store

from falconcal.core.model_inputs import Inputs, each_tensor
from falconcal.errors import UsageError, UserError


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that torchrun started, if it started any, for the block inside."""
    if not distributed.is_torchelastic_launched():
        yield
        return
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    yield
    distributed.destroy_process_group()  # not after an error, which ends all processes


def close_process_group() -> None:
    """End the group when all are finished; a process that just exits may abort the others."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def started_processes() -> tuple[int, int]:
    """Return how many processes torchrun started on each machine, and on how many; else 1 and 1."""
    if not distributed.is_torchelastic_launched():
        return 1, 1
    everywhere, here = (int(os.environ[name]) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return here, everywhere // here


def settings_for_torchrun(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of training, with the devices and nodes of torchrun if it runs."""
    if not distributed.is_torchelastic_launched():
        return dict(asked)
    here, nodes = started_processes()
    found = {"devices": here, "num_nodes": nodes}
    for name, number in found.items():
        if asked.get(name, number) != number:
            raise UsageError(
                f"torchrun has started processes for {name} {number}, not {asked[name]}: remove "
                "the setting, torchrun decides it."
            )
    return {**asked, **found}


def first_to_fail() -> bool:
    """Return whether no other process has failed yet, so that only one prints its error."""
    if not distributed.is_initialized():
        return os.environ.get("RANK", "0") == "0"  # all fail alike before they join
    return bool(_get_default_store().add("falconcal/failed", 1) == 1)


def world_size() -> int:
    """Return how many processes work together, 1 without a group."""
    together = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if together else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if world_size() > 1 else 0


def is_first_process() -> bool:
    """Return whether this is the process that writes files and prints."""
    return rank() == 0


def barrier() -> None:
    """Wait until all processes are here, so that the others see what one has written."""
    if world_size() > 1:
        gather_rows(torch.zeros(1, 1))


def gather_rows(rows: Tensor | None) -> list[Tensor]:
    """Return the rows of every process, (N_p, K) in double precision each, on the CPU.

    A process may have fewer rows than the others, or None where it does not know their width.
    """
    rows = torch.empty(0, 0) if rows is None else rows
    rows = rows.double().cpu()
    if world_size() == 1:
        return [rows]
    shapes = [(int(n), int(k)) for n, k in _exchanged(torch.tensor(rows.shape))]
    longest, width = (max(sizes) for sizes in zip(*shapes, strict=True))
    filled = torch.zeros(longest, width, dtype=torch.float64)
    filled[: len(rows), : rows.shape[1]] = rows
    return [part[:n] for part, (n, _) in zip(_exchanged(filled), shapes, strict=True)]


def broadcast_from_first(numbers: list[float]) -> list[float]:
    """Return the first process's numbers in all processes, so that all decide alike."""
    if world_size() == 1:
        return numbers
    first: list[float] = _exchanged(torch.tensor(numbers, dtype=torch.float64))[0].tolist()
    return first


def sum_over_processes(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes; the tensor itself stays as it is."""
    total = value.clone()
    distributed.all_reduce(total)
    return total


def take_statistics_from_first(model: nn.Module) -> None:
    """Give all processes the first one's running statistics; each has seen other batches."""
    for value in model.buffers() if world_size() > 1 else ():
        with torch.no_grad():
            value.copy_(_exchanged(value)[0])


def check_same(fingerprint: int) -> None:
    """Refuse data that differs between processes: some would count twice, some not at all."""
    seen = [int(value) for (value,) in _exchanged(torch.tensor([fingerprint]))]
    if len(set(seen)) > 1:
        raise UserError(
            "expected the same batches in every process, which then takes its share of them, got "
            "different ones: pass a loader that does not shuffle, or falconcal.Examples."
        )


def fingerprint(inputs: Inputs, labels: Tensor, before: int = 0) -> int:
    """Return a checksum of a batch and of those before it."""
    for tensor in (labels, *each_tensor(inputs)):
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        before = zlib.crc32(content.numpy().data, before)
    return before


def _exchanged(tensor: Tensor) -> list[Tensor]:
    """Return the tensor of every process, of the same shape in all, on this one's device."""
    own = tensor.contiguous().to(_device())
    found = [torch.empty_like(own) for _ in range(world_size())]
    distributed.all_gather(found, own)
    return [other.to(tensor.device) for other in found]


def _device() -> torch.device:
    """Return the device of tensors that the group exchanges: NCCL needs its own."""
    on_cuda = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")
