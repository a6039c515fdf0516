"""Look up an entry by name: in its table, or as package.module:Name in other code."""

from collections.abc import Mapping
from typing import Any, TypeVar

from falconcal.core.trust import CodeKind, Trust, find_code
from falconcal.errors import UsageError, described, unknown_name_error

EntryT = TypeVar("EntryT")


def check_name(kind: str, name: object) -> None:
    """Refuse what is not a name."""
    if not isinstance(name, str):
        raise UsageError(f"expected the name of a {kind}, got {described(name)}.")


def look_up(kind: CodeKind, name: str, table: Mapping[str, EntryT], trust: Trust) -> EntryT:
    """Return the entry of a table, or what ``package.module:Name`` names, if it is trusted."""
    check_name(kind.word, name)
    if name in table:
        return table[name]
    if ":" not in name:
        raise unknown_name_error(kind.word, name, table)
    thing: EntryT = find_code(kind, name, trust)
    return thing


def name_and_settings(kind: str, entry: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of an entry in TOML: a name, or a table of both."""
    if isinstance(entry, str):
        return entry, {}
    if not isinstance(entry, Mapping):
        raise UsageError(
            f"{kind}: expected a name, or a table of name and settings, got {entry!r}."
        )
    settings = dict(entry)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise UsageError(f'[{kind}]: expected name = "NAME" beside its settings, got {name!r}.')
    return name, settings
