"""Old names that still work: each warns once per caller with the new name and the version.

The policy, and when an old name goes, is in ``docs/deprecation.md``. The warnings are of Python's
``FutureWarning``, which is shown by default, since many users meet them through a study file or the
command and not in code of their own.
"""

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from falconcal.errors import UsageError

CallArguments = ParamSpec("CallArguments")
AnswerT = TypeVar("AnswerT")


def warn_deprecated(old: str, new: str, since: str, stacklevel: int = 2) -> None:
    """Warn that a name is deprecated.

    Args:
        old: What the caller wrote.
        new: What to write instead.
        since: The version of falconcal that deprecated it.
        stacklevel: How many calls above this one the warning is attributed to, as in ``warnings``.
    """
    message = f"{old} is deprecated since falconcal {since}: use {new}."
    warnings.warn(message, FutureWarning, stacklevel=stacklevel + 1)


def renamed_function(
    old: str, function: Callable[CallArguments, AnswerT], since: str
) -> Callable[CallArguments, AnswerT]:
    """Return a function, or a class, under its old name, which warns when it is called.

    Args:
        old: The old name.
        function: What to call instead.
        since: The version of falconcal that renamed it.

    Returns:
        A function that takes and returns the same.
    """

    @functools.wraps(function)
    def under_old_name(*args: CallArguments.args, **kwargs: CallArguments.kwargs) -> AnswerT:
        warn_deprecated(old, function.__name__, since)
        return function(*args, **kwargs)

    return under_old_name


def renamed_setting(values: Mapping[str, Any], old: str, new: str, since: str) -> dict[str, Any]:
    """Return settings, as a file or a caller gives them, in which an old key has its new name.

    Args:
        values: Settings by name.
        old: The old name of a setting.
        new: Its name today.
        since: The version of falconcal that renamed it.

    Returns:
        The settings under today's names; a warning is given where the old name was used.

    Raises:
        UsageError: If both names are given.
    """
    if old not in values:
        return dict(values)
    if new in values:
        raise UsageError(f"expected {new} alone, got {old}, its old name, too: remove {old}.")
    warn_deprecated(old, new, since, stacklevel=3)
    return {new if name == old else name: value for name, value in values.items()}


def moved_names(module: str, moved: Mapping[str, str], since: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module some of whose names moved elsewhere.

    Args:
        module: The module's ``__name__``.
        moved: The new home of each old name, ``package.module:name``.
        since: The version of falconcal that moved them.

    Returns:
        A function that finds an old name in its new home and warns.
    """

    def find(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = moved[name].partition(":")
        warn_deprecated(f"{module}.{name}", f"{home}.{new}", since)
        return getattr(importlib.import_module(home), new)

    return find
