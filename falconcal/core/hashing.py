"""Random bits that are looked up by a key and a position, so any batch on any device has the same.

A counter-based generator: SplitMix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014) hashes key and position.
"""

import zlib

import torch
from torch import Tensor


def keyed_bits(keys: Tensor, positions: int) -> Tensor:
    """Return 64 random bits for each key and position: (K,) -> (K, P)."""
    rows = _mix(keys.clone())[:, None]  # (K, 1)
    columns = torch.arange(positions, device=keys.device)[None]  # (1, P)
    return _mix(rows + (columns + 1) * _signed(0x9E3779B97F4A7C15))


def text_key(text: str) -> int:
    """Return the key of a text, to be added to others."""
    return _signed(zlib.crc32(text.encode()) * 0x1_0000_0001)


def content_keys(rows: Tensor) -> Tensor:
    """Return a key of what each row holds: (N, ...) -> (N,).

    Equal rows have equal keys, in whatever batch; zeros at the end of a row, which pad sequences,
    do not count.
    """
    bits = _bits_of(rows.detach()).flatten(1)  # (N, P)
    factors = keyed_bits(torch.zeros(1, dtype=torch.long, device=bits.device), bits.shape[1])
    return (bits * (factors | 1)).sum(1)


def _bits_of(rows: Tensor) -> Tensor:
    """Return the bits of each number as a whole number; 0 and -0 are the same."""
    if not rows.is_floating_point():
        return rows.long()
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.dtype.itemsize]
    return (rows + 0.0).contiguous().view(whole).long()


def _mix(state: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place; multiplication of int64 wraps, as it needs."""
    spare = torch.empty_like(state)
    state.bitwise_xor_(_shift_right(state, 30, spare)).mul_(_signed(0xBF58476D1CE4E5B9))
    state.bitwise_xor_(_shift_right(state, 27, spare)).mul_(_signed(0x94D049BB133111EB))
    return state.bitwise_xor_(_shift_right(state, 31, spare))


def _shift_right(state: Tensor, count: int, spare: Tensor) -> Tensor:
    # >> on int64 copies the sign bit; the mask makes it a logical shift
    torch.bitwise_right_shift(state, count, out=spare)
    return spare.bitwise_and_((1 << (64 - count)) - 1)


def _signed(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >= 1 << 63 else number
