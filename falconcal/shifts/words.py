"""Word shifts on tokens (N, length), 0 being the padding at the end.

Swapped words become random words of the vocabulary. The paper swaps 0 to 45 % of them, its authors'
code 0 to 90 %, and its mask also hits padding, which is how the shift becomes strong: a median
document fills 11 % of 2,500 places. All four are here by name.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

PAPER_SHARES = tuple(level / 20 for level in range(10))
CODE_SHARES = tuple(level / 10 for level in range(10))
PADDING = 0
SWAPS = ("word_swap", "word_swap_anywhere", "word_swap_90", "word_swap_90_anywhere")  # all alike


def word_shifts() -> dict[str, Shift]:
    """Return shifts of words by name: swapped for others, dropped, shuffled.

    Returns:
        The shifts; tokens (N, length) in and out, 0 being the padding at the end.

    Example:
        >>> import torch
        >>> from falconcal.shifts import word_shifts
        >>> tokens = torch.tensor([[5, 3, 8, 2, 0, 0]])
        >>> word_shifts()["word_drop"].at(tokens, 5)
        tensor([[5, 2, 0, 0, 0, 0]])
    """
    anywhere = partial(swap_words, padding_too=True)
    shifts = (
        _swaps("word_swap", PAPER_SHARES, swap_words, "0 to 45 % of the words become random ones"),
        _swaps(
            "word_swap_anywhere",
            PAPER_SHARES,
            anywhere,
            "0 to 45 % of all places, padding included, become random words",
        ),
        _swaps(
            "word_swap_90", CODE_SHARES, swap_words, "0 to 90 % of the words become random ones"
        ),
        _swaps(
            "word_swap_90_anywhere",
            CODE_SHARES,
            anywhere,
            "0 to 90 % of all places, padding included, become random words",
        ),
        Shift("word_drop", CODE_SHARES, drop_words, "0 to 90 % of the words are missing", "tokens"),
        Shift(
            "word_shuffle",
            CODE_SHARES,
            shuffle_words,
            "0 to 90 % of the words change places",
            "tokens",
        ),
    )
    return {shift.name: shift for shift in shifts}


def swap_words(
    words: Tensor, share: float, noise: KeyedNoise, *, tokens: int, padding_too: bool = False
) -> Tensor:
    """Return a share of the words, or of all places, as random words of the vocabulary."""
    if tokens < 2:
        raise UserError(f"expected padding and at least one word, got {tokens} tokens in all.")
    places = torch.ones_like(words, dtype=torch.bool) if padding_too else words != PADDING
    drawn = noise.uniform(tuple(words.shape[1:]), stream=1) * (tokens - 1)  # (N, L)
    others = (drawn.long() + 1).to(words.dtype)
    return torch.where(_hit(places, share, noise), others, words)


def drop_words(words: Tensor, share: float, noise: KeyedNoise) -> Tensor:
    """Return the texts without a share of their words, closed up, at least one word left."""
    places = words != PADDING
    gone = _hit(places, share, noise, keep=1) | ~places
    order = gone.to(torch.uint8).argsort(
        dim=1, stable=True
    )  # what stays, in its order, comes first
    return words.gather(1, order).masked_fill_(gone.gather(1, order), PADDING)


def shuffle_words(words: Tensor, share: float, noise: KeyedNoise) -> Tensor:
    """Return the texts with a share of their words in one another's places, in random order."""
    hit = _hit(words != PADDING, share, noise)
    place = torch.arange(words.shape[1], device=words.device).expand_as(words)  # (N, L)
    # the places that are hit first, in order; the same places in random order; the rest alike
    targets = torch.where(hit, place, place + words.shape[1]).argsort(1)
    drawn = noise.uniform(tuple(words.shape[1:]), stream=1)
    sources = torch.where(hit, drawn, place + 1.0).argsort(dim=1, stable=True)
    return torch.empty_like(words).scatter_(1, targets, words.gather(1, sources))


def _hit(places: Tensor, share: float, noise: KeyedNoise, keep: int = 0) -> Tensor:
    """Return which of the places are hit, the share of each row to a whole number: (N, L)."""
    drawn = noise.uniform(tuple(places.shape[1:])).masked_fill_(~places, 2.0)
    rank = drawn.argsort(dim=1, stable=True).argsort(1)
    count = places.sum(1, keepdim=True)  # (N, 1)
    wanted = (share * count.double()).round().long()
    return rank < torch.minimum(wanted, (count - keep).clamp_min(0))


def _swaps(
    name: str, shares: tuple[float, ...], apply: Callable[..., Tensor], summary: str
) -> Shift:
    return Shift(name, shares, apply, summary, "tokens", ("tokens",), kin=SWAPS)
