"""What every format is read into before it is checked: one column per class, and labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars

from falconcal.errors import UsageError, did_you_mean
from falconcal.io.table_files import Rows

MOST_NAMED = 20  # of a file's columns, in a message


@dataclass(frozen=True)
class ColumnOptions:
    """How the caller names the columns; None is the format's default."""

    labels: str | None
    probabilities: str | None
    logits: bool
    groups: str | None


@dataclass(frozen=True, eq=False)
class RawPredictions(Rows):
    """The content of a file, not yet checked."""

    values: polars.DataFrame  # (N, C), columns named as messages name them
    labels: polars.Series  # (N,)
    groups: polars.Series | None  # (N,)
    classes: tuple[str, ...]
    named: bool  # whether classes have names, which labels then are


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what."""

    labels: str
    values: tuple[str, ...]  # C of them, in the order of the classes
    classes: tuple[str, ...]
    named: bool
    groups: str | None

    @property
    def all(self) -> list[str]:
        """Return the columns to read, each once."""
        others = [self.groups] if self.groups is not None else []
        return list(dict.fromkeys([self.labels, *self.values, *others]))


def find_columns(path: Path, columns: Sequence[str], names: ColumnOptions) -> Columns:
    """Return the columns that the caller means; the error lists those that there are."""
    labels = names.labels if names.labels is not None else "label"
    prefix = names.probabilities
    if prefix is None:
        prefix = "logit_" if names.logits else "p_"
    check_there(path, "--labels", labels, columns)
    if names.groups is not None:
        check_there(path, "--groups", names.groups, columns)
    taken = [name for name in columns if name not in (labels, names.groups)]
    found = [name for name in taken if name.startswith(prefix) and name != prefix]
    if len(found) < 2:
        raise UsageError(_too_few(path, prefix, found, columns))
    values, named = _ordered(path, prefix, found)
    return Columns(
        labels, values, tuple(name.removeprefix(prefix) for name in values), named, names.groups
    )


def check_there(
    path: Path, option: str, name: str, known: Sequence[str], kind: str = "column"
) -> None:
    """Refuse a column, or array, that the file does not have."""
    if name not in known:
        raise UsageError(
            f"{path}: there is no {kind} {name!r}. {_near(name, known)}{listed(known, kind)} "
            f"Name it with {option}.{_separator(known)}"
        )


def listed(known: Sequence[str], kind: str = "column") -> str:
    """Return a file's columns in a sentence, not all if they are many."""
    words = ", ".join(repr(name) for name in known[:MOST_NAMED])
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return f"It has the {kind}s {words}{more}." if known else f"It has no {kind}s."


def _near(name: str, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known)
    return f"{hint} " if hint.startswith("Did") else ""


def _separator(columns: Sequence[str]) -> str:
    """Return a hint for a file whose whole header is one name."""
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(columns) == 1 and separator in columns[0]:
            return f" The cells seem to be separated by {word}: write commas."
    return ""


def _too_few(path: Path, prefix: str, found: list[str], columns: Sequence[str]) -> str:
    came = f"one, {found[0]!r}" if found else "none"
    both = " Two classes need both columns: the other is 1 less this one." if found else ""
    return (
        f"{path}: expected one column per class, at least 2, that begin with {prefix!r}, got "
        f"{came}.{both} {listed(columns)} Give what they begin with by --probabilities; for "
        "logits, which begin with 'logit_' by default, add --logits."
    )


def _ordered(path: Path, prefix: str, found: list[str]) -> tuple[tuple[str, ...], bool]:
    """Return the columns in the order of the classes, and whether these have names."""
    whole = [re.fullmatch(r"[0-9]+", name.removeprefix(prefix)) is not None for name in found]
    if not any(whole):
        return tuple(found), True
    if not all(whole):
        other = found[whole.index(False)]
        raise UsageError(
            f"{path}: expected columns that begin with {prefix!r} to end all in numbers, or all in "
            f"names, got {found[whole.index(True)]!r} and {other!r}. Rename those that are not a "
            "class, or choose another beginning with --probabilities."
        )
    ordered = sorted(found, key=lambda name: int(name.removeprefix(prefix)))
    numbers = [int(name.removeprefix(prefix)) for name in ordered]
    if numbers != list(range(len(numbers))):
        raise UsageError(
            f"{path}: expected columns {prefix}0 to {prefix}{len(found) - 1}, one per class, got "
            f"{', '.join(ordered[:MOST_NAMED])}: number the classes from 0, in labels too, or give "
            "them names."
        )
    return tuple(ordered), False
