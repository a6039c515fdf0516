"""Character typos on raw text: letters swapped with the next, left out, doubled or mistyped."""

import string
from collections.abc import Iterable, Sequence
from numbers import Real

import numpy
import torch
from torch import Tensor

from falconcal.data import Texts
from falconcal.errors import UserError, described
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

LETTER_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
TYPOS = "typos"


def typo_shifts() -> dict[str, Shift]:
    """Return typos by name; the data must keep its raw texts and their encoder.

    Returns:
        The shift ``typos``, tokens (N, length) in and out.

    Example:
        >>> from falconcal.shifts import typo_shifts
        >>> typo_shifts()["typos"].strengths[-1]
        0.5
    """
    summary = "1 to 50 % of the letters mistyped, then encoded anew"
    return {TYPOS: Shift(TYPOS, LETTER_SHARES, retyped, summary, "tokens", ("texts",))}


def typos(
    texts: Sequence[str],
    share: float,
    *,
    seed: int = 0,
    level: int = 1,
    examples: Tensor | None = None,
) -> list[str]:
    """Return texts with a share of their letters mistyped.

    Letters are swapped with the next, left out, doubled or replaced; which ones depends on seed,
    level and example alone.

    Args:
        texts: The N texts.
        share: The share of letters, from 0 to 1.
        seed: The seed of the noise.
        level: The level that the noise belongs to.
        examples: The numbers of the texts in the data, (N,); from 0 by default.

    Returns:
        The N changed texts.

    Raises:
        UserError: ``texts`` is not a list of texts, or ``share`` is not from 0 to 1.

    Example:
        >>> from falconcal.shifts import typos
        >>> typos(["calibrated confidence"], 0.2)
        ['cabrted confidece']
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in _listed(texts)):
        raise UserError(f"expected a list of texts, got {described(texts)}.")
    if not isinstance(share, Real) or not 0 <= share <= 1:
        raise UserError(f"expected a share from 0 to 1, got {share!r}.")
    numbers = torch.arange(len(texts)) if examples is None else examples
    return _mistyped(texts, share, KeyedNoise(TYPOS, seed, level, numbers))


def _listed(texts: object) -> list[object]:
    return list(texts) if isinstance(texts, Iterable) else [texts]


def retyped(tokens: Tensor, share: float, noise: KeyedNoise, *, texts: Texts) -> Tensor:
    """Return the tokens of the mistyped texts: (N, length)."""
    encoded = texts.encode(_mistyped(texts.raw, share, noise)).to(tokens)
    if encoded.shape != tokens.shape:
        raise UserError(
            f"expected encoded texts of shape {tuple(tokens.shape)}, got {tuple(encoded.shape)}: "
            "give the texts of the same examples, and an encoder that pads to one length."
        )
    return encoded


def _mistyped(texts: Sequence[str], share: float, noise: KeyedNoise) -> list[str]:
    # one by one: a batch as wide as its longest text would hold far more numbers than letters
    return [
        _one(text, share, KeyedNoise(noise.name, noise.seed, noise.level, number.reshape(1)))
        for text, number in zip(texts, noise.examples.cpu(), strict=True)
    ]


def _one(text: str, share: float, noise: KeyedNoise) -> str:
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


def _swap_with_next(typed: list[str], index: int, drawn: float) -> None:
    if index + 1 < len(typed) and typed[index + 1].isalpha():
        typed[index : index + 2] = typed[index + 1], typed[index]
    else:  # the last letter of a word has no next one
        _mistype(typed, index, drawn)


def _leave_out(typed: list[str], index: int, drawn: float) -> None:
    del drawn
    typed[index] = ""


def _double(typed: list[str], index: int, drawn: float) -> None:
    del drawn
    typed[index] *= 2


def _mistype(typed: list[str], index: int, drawn: float) -> None:
    others = [letter for letter in string.ascii_lowercase if letter != typed[index].lower()]
    other = others[int(drawn * len(others))]
    typed[index] = other.upper() if typed[index].isupper() else other


MISTAKES = (_swap_with_next, _leave_out, _double, _mistype)
