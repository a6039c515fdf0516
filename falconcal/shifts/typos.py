"""Character typos on raw text: letters swapped with the next, left out, doubled or mistyped."""

import string
from collections.abc import Iterable, Sequence
from numbers import Real

import numpy
import torch
from torch import Tensor

from falconcal.data import Texts
from falconcal.errors import UserError, described
from falconcal.shifts.noise import Noise
from falconcal.shifts.shift import Shift

SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
NAME = "typos"


def typo_shifts() -> dict[str, Shift]:
    """Return the shift by name; it needs data that keeps its raw text and the encoder."""
    summary = "1 to 50 % of the letters mistyped, then encoded anew"
    return {NAME: Shift(NAME, SHARES, retyped, summary, "tokens", ("texts",))}


def typos(
    texts: Sequence[str],
    share: float,
    *,
    seed: int = 0,
    level: int = 1,
    examples: Tensor | None = None,
) -> list[str]:
    """Return the texts with a share of their letters mistyped, keyed by seed, level and example.

    ``examples`` (N,) numbers the texts, from 0 by default.
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in _listed(texts)):
        raise UserError(f"expected a list of texts, got {described(texts)}.")
    if not isinstance(share, Real) or not 0 <= share <= 1:
        raise UserError(f"expected a share from 0 to 1, got {share!r}.")
    numbers = torch.arange(len(texts)) if examples is None else examples
    return _mistyped(texts, share, Noise(NAME, seed, level, numbers))


def _listed(texts: object) -> list[object]:
    return list(texts) if isinstance(texts, Iterable) else [texts]


def retyped(tokens: Tensor, share: float, noise: Noise, *, texts: Texts) -> Tensor:
    """Return the tokens of the mistyped texts: (N, length)."""
    encoded = texts.encode(_mistyped(texts.raw, share, noise)).to(tokens)
    if encoded.shape != tokens.shape:
        raise UserError(
            f"expected encoded texts of shape {tuple(tokens.shape)}, got {tuple(encoded.shape)}: "
            "give the texts of the same examples, and an encoder that pads to one length."
        )
    return encoded


def _mistyped(texts: Sequence[str], share: float, noise: Noise) -> list[str]:
    # one by one: a batch as wide as its longest text would hold far more numbers than letters
    return [
        _one(text, share, Noise(noise.name, noise.seed, noise.level, number.reshape(1)))
        for text, number in zip(texts, noise.examples.cpu(), strict=True)
    ]


def _one(text: str, share: float, noise: Noise) -> str:
    letters = numpy.flatnonzero([character.isalpha() for character in text])
    count = round(share * len(letters))
    if count == 0:
        return text
    drawn = noise.uniform((3, len(letters)))[0].numpy()  # (3, letters): which, how, to what
    chosen = numpy.sort(numpy.argsort(drawn[0], kind="stable")[:count])
    typed = list(text)
    for number in chosen:
        mistake = MISTAKES[int(drawn[1, number] * len(MISTAKES))]
        mistake(typed, int(letters[number]), float(drawn[2, number]))
    return "".join(typed)


def _swap_with_next(typed: list[str], place: int, drawn: float) -> None:
    if place + 1 < len(typed) and typed[place + 1].isalpha():
        typed[place : place + 2] = typed[place + 1], typed[place]
    else:  # the last of a word has no next
        _mistype(typed, place, drawn)


def _leave_out(typed: list[str], place: int, drawn: float) -> None:
    del drawn
    typed[place] = ""


def _double(typed: list[str], place: int, drawn: float) -> None:
    del drawn
    typed[place] *= 2


def _mistype(typed: list[str], place: int, drawn: float) -> None:
    others = [letter for letter in string.ascii_lowercase if letter != typed[place].lower()]
    other = others[int(drawn * len(others))]
    typed[place] = other.upper() if typed[place].isupper() else other


MISTAKES = (_swap_with_next, _leave_out, _double, _mistype)
