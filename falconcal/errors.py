"""Errors and warnings. Each message says what was expected, what came, and what to do.

    ValueError
    └── UserError             the caller can fix it; the command exits with 1
        ├── UsageError        a name, a setting or an option is wrong; the command exits with 2
        ├── ImageReadError    an image file cannot be read (in falconcal.io)
        └── DrawingError      a figure cannot be drawn (in falconcal.report)

    UserWarning
    ├── CalibrationWarning    the validation data does not determine a calibration
    ├── ClassOrderWarning     the first examples of data in class order lack classes
    └── CollapseWarning       training ended with a model that predicts no better than chance

``except falconcal.UserError`` catches all errors above. Anything else that is raised is a bug.
"""

import difflib
from collections.abc import Iterable

__all__ = ["CalibrationWarning", "ClassOrderWarning", "CollapseWarning", "UsageError", "UserError"]


class UserError(ValueError):
    """An error that the caller can fix: data, a file or a model is not as expected.

    The command prints its message without a traceback and exits with 1.

    Example:
        >>> import falconcal
        >>> try:
        ...     falconcal.Bounds(1, 0)
        ... except falconcal.UserError as error:
        ...     print(error)
        expected finite bounds, low below high, got 1 and 0.
    """


class UsageError(UserError):
    """A name, a setting or a command-line option is wrong; the command exits with 2.

    Example:
        >>> import falconcal
        >>> falconcal.Falcon(epoch=3)
        Traceback (most recent call last):
        falconcal.errors.UsageError: Falcon: unknown setting 'epoch'. Did you mean 'epochs'?
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not known: the nearest ones, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(repr(word) for word in near)}?"
    return f"Known: {', '.join(known)}." if known else "There are none."


def described(value: object) -> str:
    """Return a short description of a value that came where something else was expected."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}, not an instance of it"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    if isinstance(value, int | float):
        return "a huge number" if abs(value) >= 1e18 else f"the number {value}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"{type(value).__name__} of {dtype}, shape {tuple(shape)}"
    return f"a {type(value).__name__}"


def unknown_name_error(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is in no table."""
    return UsageError(f"unknown {kind} {name!r}. {did_you_mean(name, known)}")


def readable(text: str) -> str:
    """Return text that any terminal and any file can hold: what cannot be printed as its code."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


class CalibrationWarning(UserWarning):
    """The validation data does not determine a calibration, for example a temperature.

    Example:
        >>> import warnings
        >>> from falconcal.errors import CalibrationWarning
        >>> warnings.simplefilter("error", CalibrationWarning)  # stop instead of going on
    """


class ClassOrderWarning(UserWarning):
    """The first examples of data that is in class order lack some of its classes.

    Example:
        >>> import warnings
        >>> from falconcal.errors import ClassOrderWarning
        >>> warnings.simplefilter("ignore", ClassOrderWarning)  # the first class is what is wanted
    """


class CollapseWarning(UserWarning):
    """Training ended with a model that predicts no better than chance.

    Example:
        >>> import warnings
        >>> from falconcal.errors import CollapseWarning
        >>> warnings.simplefilter("ignore", CollapseWarning)  # a short trial that may fail
    """
