"""Variants of a study: tables of changes, and sweeps over the values of one setting.

``[variants.NAME]`` holds changes with keys as for ``--set``; ``[sweeps]`` holds keys with lists of
values, one variant per value. All variants are measured on the same data and shifts.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from falconcal.errors import UsageError
from falconcal.io.output_folder import DEFAULT_VARIANT, REFERENCE_VARIANT
from falconcal.studies.overrides import Values

VARIANT_KEYS = ("batch_size", "model")  # what a variant may change beside the settings of methods
TAKEN = {DEFAULT_VARIANT: "the study as it stands", REFERENCE_VARIANT: "the reference model's run"}
Variants = dict[str, dict[str, Any]]


def expand_sweeps(values: Values, source: str) -> None:
    """Replace sweeps by one variant per value, after the variants that are tables."""
    variants = _table(values.pop("variants", {}), f"{source}: [variants]")
    sweeps = _table(values.pop("sweeps", {}), f"{source}: [sweeps]")
    written = {
        name: _flat(_table(changes, f"{source}: [variants.{name}]"))
        for name, changes in variants.items()
    }
    for name, changes in _swept(_flat(sweeps), source):
        if name in written:
            raise UsageError(f"{source}: two variants are called {name!r}: rename one.")
        written[name] = changes
    if written:
        values["variants"] = written


def check_variant(name: str, changes: dict[str, Any], methods: Collection[str]) -> None:
    """Refuse a variant with a reserved name, or that changes what all are measured on."""
    if name in TAKEN:
        raise UsageError(f"variants.{name} is {TAKEN[name]}: choose another name.")
    for key in changes:
        kind = _normal(key).partition(".")[0]
        if kind not in VARIANT_KEYS and "." not in key:
            raise _not_free(name, key)
        if kind in ("dataset", "search", "tuning") and kind not in methods:
            raise _not_free(name, key)


def without(variants: Variants, keys: Collection[str]) -> Variants:
    """Return variants without these keys and without epochs, which a smoke run makes small."""
    small = {_normal(key) for key in keys}
    return {
        name: {
            key: value
            for key, value in changes.items()
            if _normal(key) not in small and not key.endswith(".epochs")
        }
        for name, changes in variants.items()
    }


def _swept(sweeps: dict[str, Any], source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the variants of all sweeps, named by setting, or by key where settings share a name."""
    settings = Counter(key.rpartition(".")[2] for key in sweeps)
    for key, values in sweeps.items():
        if not isinstance(values, list) or not values:
            raise UsageError(
                f"{source}: [sweeps] {key}: expected a list of values, got {values!r}."
            )
        setting = key.rpartition(".")[2]
        name = setting if settings[setting] == 1 else _normal(key)
        for value in values:
            yield f"{name}={_readable(value)}", {key: value}


def _readable(value: Any) -> str:
    """Return a value as part of a name that is also the name of a folder."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "-".join(_readable(one) for one in value)
    return re.sub(r"[^\w.+-]+", "-", str(value).removesuffix(".0")).strip("-")


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with whole keys: TOML reads an unquoted ``falcon.share`` as two tables."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and "." not in key and key not in VARIANT_KEYS:
            flat |= {f"{key}.{inner}": one for inner, one in value.items()}
        else:
            flat[key] = value
    return flat


def _normal(key: str) -> str:
    return key.strip().removeprefix("methods.")


def _table(found: Any, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UsageError(f"{where}: expected a table, got {found!r}.")
    return found


def _not_free(name: str, key: str) -> UsageError:
    return UsageError(
        f"variants.{name}: {key} cannot differ between variants; they change settings of methods "
        f"(METHOD.SETTING), of the model, or {VARIANT_KEYS[0]}, and all are measured on "
        "the same data."
    )
