"""Changes of a study before it is made: by keys as for ``--set``, or by tables of methods."""

import tomllib
from collections.abc import Collection, Iterator
from typing import Any

from falconcal.core.registry import name_and_settings
from falconcal.core.settings import RENAMED
from falconcal.errors import UsageError, did_you_mean
from falconcal.io.parsing import parse_toml
from falconcal.methods import METHODS

EVERY = "*"  # in the place of a method: all methods that have the setting
TUNING = ("search", "tuning")  # tables that only ``falconcal tune`` reads
ENTRIES = ("dataset", "model")
DRIFTED = "drifted"  # the table of what may be fitted on
Values = dict[str, Any]  # a study as TOML gives it


def parse_override(change: str) -> tuple[str, Any]:
    """Return key and value of one ``key=value`` of the command line."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set expects key=value, got {change!r}; for example falcon.epochs=10.")
    return key, _value(key, text.strip())


def set_value(values: Values, key: str, value: Any, known: Collection[str], where: str) -> None:
    """Set one value; ``falcon.epochs`` is short for ``methods.falcon.epochs``.

    ``*.epochs`` sets it in all methods that have it, and in their bases. ``dataset`` and ``model``
    have settings too: ``model.hidden``. ``known`` are the settings of the study itself; ``where``
    names the source of the change in errors.
    """
    where = f"{where} {key}"
    method, dot, setting = key.strip().removeprefix("methods.").rpartition(".")
    if method == EVERY:
        _set_in_every_method(values, setting, value, where)
        return
    if not dot:
        _check_key(RENAMED.get(setting, setting), known, where)
        table = values
    elif method == DRIFTED:
        table = values.setdefault(DRIFTED, {})
    elif method in ENTRIES and key.strip().startswith(f"{method}."):
        table = _entry_table(values, method)
    else:
        table = _table(values, method, where)
    _replace(table, setting, value)


def _set_in_every_method(values: Values, setting: str, value: Any, where: str) -> None:
    tables = list(tables_with_setting(values, setting))
    if not tables:
        raise UsageError(f"{where}: no method of the study has the setting {setting!r}.")
    for table in tables:
        _replace(table, setting, value)


def tables_with_setting(values: Values, setting: str) -> Iterator[Values]:
    """Yield the tables of all methods, and of their bases, that have or state a setting."""
    methods = values.get("methods")
    for name, table in methods.items() if isinstance(methods, dict) else ():
        base = name
        while isinstance(table, dict):  # anything that is not a method is refused later
            kind = METHODS.get(str(table.get("method", base)))
            known = getattr(kind, "__dataclass_fields__", ())
            if setting in table or RENAMED.get(setting, setting) in known:
                yield table
            table, base = table.get("base"), ""


def merge(table: Values, stated: Any, where: str) -> None:
    """Replace settings of a table by those of another, also in its base."""
    if not isinstance(stated, dict):
        raise UsageError(f"{where}: expected a table of settings, got {stated!r}.")
    for setting, value in stated.items():
        if setting == "base" and isinstance(value, dict):
            merge(_base_table(table.setdefault("base", {}), where), value, f"{where}.base")
        else:
            _replace(table, setting, value)


def _replace(table: Values, setting: str, value: Any) -> None:
    """Set a value; the same setting under its other name, old or new, goes."""
    for old, new in RENAMED.items():
        if setting in (old, new):
            table.pop(new if setting == old else old, None)
    table[setting] = value


def method_table(values: Values, method: str, where: str) -> Values:
    """Return the settings of a method, or with ``METHOD.base`` those of its base."""
    if method.endswith(".base"):
        outer = method_table(values, method.removesuffix(".base"), where)
        return _base_table(outer.get("base"), where)
    methods = values.get("methods")
    methods = methods if isinstance(methods, dict) else {}
    table = methods.get(method)
    if not isinstance(table, dict):
        raise UsageError(
            f"{where}: the study has no method {method!r}. {did_you_mean(method, methods)}"
        )
    return table


def _entry_table(values: Values, kind: str) -> Values:
    """Return the table of the dataset or the model; a name alone becomes a table."""
    name, settings = name_and_settings(kind, values.get(kind, {}))
    values[kind] = {"name": name, **settings}
    table: Values = values[kind]
    return table


def _table(values: Values, name: str, where: str) -> Values:
    """Return the table of a method by its name, or one of the tables for tuning."""
    kind, _, method = name.partition(".")
    if kind not in TUNING or kind in values.get("methods", {}):
        return method_table(values, name, where)
    table = values.setdefault(kind, {})
    if method and isinstance(table, dict):
        table = table.setdefault(method, {})
    if not isinstance(table, dict):
        raise UsageError(f"{where}: expected {name} to be a table, got {table!r}.")
    return table


def _base_table(base: Any, where: str) -> Values:
    if not isinstance(base, dict):
        raise UsageError(
            f"{where}: the base is {base!r}, which is not a table: change the settings of that "
            "method of the study instead."
        )
    return base


def _check_key(setting: str, known: Collection[str], where: str) -> None:
    if setting not in known:
        raise UsageError(
            f"{where}: unknown setting. {did_you_mean(setting, known)} "
            "A method's setting is written METHOD.SETTING=value, for example falcon.epochs=10."
        )


def _value(key: str, text: str) -> Any:
    """Read a value as TOML; what is not valid TOML is a string."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:
        raise UsageError(f"--set {key}: cannot read {text[:40]} ...: {error}.") from None
