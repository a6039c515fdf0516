"""Seeds and random states."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def combined_seed(*parts: int) -> int:
    """Return one seed made of several numbers, in the range of a generator."""
    mixed = 0
    for part in parts:
        mixed = (mixed * 1_000_003 + part) % 2**63
    return mixed


@contextmanager
def seeded_random(seed: int) -> Iterator[None]:
    """Seed torch inside the ``with``; afterwards the caller's random state is as before."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
