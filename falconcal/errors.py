"""Errors that say what was expected, what came, and what to do."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """The caller can put this right; the command shows it without a traceback and exits with 1."""


class UsageError(UserError):
    """The command line or a study file is wrong; the command exits with 2."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not known: the nearest ones, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(repr(word) for word in near)}?"
    return f"Known: {', '.join(known)}." if known else "There are none."


def described(value: object) -> str:
    """Return what came where something else was expected, in few words."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}, not one made of it"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    if isinstance(value, int | float):
        return "a huge number" if abs(value) >= 1e18 else f"the number {value}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"{type(value).__name__} of {dtype}, shape {tuple(shape)}"
    return f"a {type(value).__name__}"


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is in no table."""
    return UsageError(f"unknown {kind} {name!r}. {did_you_mean(name, known)}")


def readable(text: str) -> str:
    """Return text that any terminal and any file can hold: what cannot be printed as its code."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
