"""Looking a thing up by name: in its table, or as package.module:Name from outside."""

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from falconcal.errors import UsageError, described, unknown

Thing = TypeVar("Thing")


def check_name(kind: str, name: object) -> None:
    """Refuse what is not a name."""
    if not isinstance(name, str):
        raise UsageError(f"expected the name of a {kind}, got {described(name)}.")


def look_up(kind: str, name: str, table: Mapping[str, Thing]) -> Thing:
    """Return the entry of a table, or the object that ``package.module:Name`` names."""
    check_name(kind, name)
    if name in table:
        return table[name]
    if ":" not in name:
        raise unknown(kind, name, table)
    thing: Thing = _import(kind, name)
    return thing


def name_and_settings(kind: str, entry: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what TOML says of an entry: its name alone, or a table of its name and settings."""
    if isinstance(entry, str):
        return entry, {}
    settings = dict(entry)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise UsageError(f'[{kind}]: expected name = "NAME" beside its settings, got {name!r}.')
    return name, settings


def _import(kind: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module does when it is imported
        raise UsageError(
            f"cannot import {kind} {name!r}: {type(error).__name__}: {error}. Expected "
            "package.module:Name, importable from the current folder or an installed package."
        ) from None
