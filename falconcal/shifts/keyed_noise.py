"""Random numbers that belong to an example: keyed by (shift, seed, level, example, position).

The key is hashed (``falconcal.core.hashing``), so any batch on any device draws the same bits.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from falconcal.core.hashing import keyed_bits, text_key

BELOW_ONE = 1 - 2.0**-24  # float32 rounds the highest of 24 bits and a half up to 1


@dataclass(frozen=True)
class KeyedNoise:
    """The noise of a batch at one level of one shift."""

    name: str
    seed: int
    level: int
    examples: Tensor  # (N,) whole numbers

    def uniform(self, shape: tuple[int, ...], stream: int = 0) -> Tensor:
        """Return numbers in (0, 1), one row per example: (N, *shape)."""
        return self._unit(shape, f"uniform {stream}")

    def normal(self, shape: tuple[int, ...], stream: int = 0) -> Tensor:
        """Return standard normal numbers, one row per example (Box and Muller): (N, *shape)."""
        radius = (-2 * self._unit(shape, f"{2 * stream + 1}").log()).sqrt()
        return radius * (2 * math.pi * self._unit(shape, f"{2 * stream + 2}")).cos()

    def paired_uniform(self, shape: tuple[int, ...], stream: int = 0) -> Tensor:
        """Return numbers in (0, 1) like ``uniform``, two of each hash, in half the time."""
        return self._halves(math.prod(shape), f"paired uniform {stream}").reshape(-1, *shape)

    def paired_normal(self, shape: tuple[int, ...], stream: int = 0) -> Tensor:
        """Return standard normal numbers, two of each hash: Box and Muller's cosine and sine.

        A quarter of the time of ``normal``, which stays because stored results hold its bits.
        """
        count = math.prod(shape)
        pairs = -(-count // 2)
        halves = self._halves(2 * pairs, f"paired normal {stream}")  # (N, 2 * pairs)
        radius = halves[:, :pairs].log().mul_(-2).sqrt_()
        angle = halves[:, pairs:] * (2 * math.pi)
        both = torch.cat([angle.cos().mul_(radius), angle.sin().mul_(radius)], 1)
        return both[:, :count].reshape(-1, *shape)

    def _halves(self, count: int, stream: str) -> Tensor:
        halves = self._bits(-(-count // 2), stream).view(torch.int32)  # (N, count or one more)
        # the upper 24 bits of each half, what float32 can hold
        centred = halves.bitwise_right_shift_(8).bitwise_and_(0xFFFFFF).float().add_(0.5)
        return centred.mul_(2.0**-24).clamp_(max=BELOW_ONE)[:, :count]

    def _unit(self, shape: tuple[int, ...], stream: str) -> Tensor:
        bits = self._bits(math.prod(shape), stream)  # (N, P)
        centred = ((bits >> 40) & 0xFFFFFF).float() + 0.5  # 24 bits, what float32 can hold
        return (centred / 2**24).clamp_(max=BELOW_ONE).reshape(-1, *shape)

    def _bits(self, positions: int, stream: str) -> Tensor:
        key = text_key(f"{self.name}/{self.seed}/{self.level}/{stream}")
        return keyed_bits(self.examples.long() + key, positions)
