"""A file whose columns are known and not yet read, whatever its format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from falconcal.errors import UsageError, did_you_mean
from falconcal.io.table_files import TableFile

MOST_NAMED = 20  # of a file's columns, in a message


@dataclass(frozen=True, eq=False)
class OpenTable:
    """The names of a file's columns, and how to read some of them."""

    path: Path
    columns: tuple[str, ...]  # of one number or text per example
    read: Callable[[Sequence[str]], TableFile]
    kind: str = "column"  # what messages call them: in NPZ files an array
    matrices: Mapping[str, int] = field(default_factory=dict)  # arrays (N, C), with their C
    classes: tuple[str, ...] | None = None  # names of the classes, if the file has them

    @property
    def names(self) -> tuple[str, ...]:
        """All names that the file has."""
        return (*self.columns, *self.matrices)

    def check_there(self, option: str, name: str) -> None:
        """Refuse a column, or array, that the file does not have."""
        if name not in self.names:
            raise UsageError(
                f"{self.path}: there is no {self.kind} {name!r}. {_near(name, self.names)}"
                f"{self.listed()} Name it with {option}.{_separator(self.names)}"
            )

    def listed(self) -> str:
        """Return the columns in a sentence, not all if they are many."""
        known = self.names
        words = ", ".join(repr(name) for name in known[:MOST_NAMED])
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        return f"It has the {self.kind}s {words}{more}." if known else f"It has no {self.kind}s."


def matrix_columns(name: str, width: int) -> tuple[str, ...]:
    """Return what the columns of an array (N, C) are called."""
    return tuple(f"{name}[:, {number}]" for number in range(width))


def _near(name: str, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known)
    return f"{hint} " if hint.startswith("Did") else ""


def _separator(columns: Sequence[str]) -> str:
    """Return a hint for a file whose whole header is one name."""
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(columns) == 1 and separator in columns[0]:
            return f" The cells seem to be separated by {word}: write commas."
    return ""
