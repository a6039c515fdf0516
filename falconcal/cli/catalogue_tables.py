"""The tables that ``falconcal list`` shows: one line per entry, and the settings of methods."""

import dataclasses
import inspect
import json
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from falconcal.core.settings import described_settings
from falconcal.data import DATASETS
from falconcal.methods import METHODS, method_name
from falconcal.metrics import METRICS, POOLED
from falconcal.models import MODELS
from falconcal.shifts import OUTLIERS, SHIFT_GROUPS, SHIFTS, STORED
from falconcal.studies import STUDIES


def summary_line(thing: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _module_line(thing: Any) -> str:
    return summary_line(inspect.getmodule(thing))


def _method_line(method: Any) -> str:
    """Return what a method is, and the base where the entry is another's class with its own."""
    base = method.keywords["base"] if isinstance(method, partial) else None
    line = _module_line(inspect.unwrap(method))
    return f"{line} The base is {method_name(base)}." if base is not None else line


CATALOGUE: dict[str, Callable[[], Mapping[str, str]]] = {
    "methods": lambda: {name: _method_line(method) for name, method in METHODS.items()},
    "studies": lambda: {name: tomllib.loads(text)["title"] for name, text in STUDIES.items()},
    "shifts": lambda: {
        **{name: shift.summary for name, shift in SHIFTS.items()},
        **{name: summary for name, (_, summary) in STORED.items()},
        **{
            name: f"for falconcal measure: all of {', '.join(names)}"
            for name, names in SHIFT_GROUPS.items()
        },
    },
    "outliers": lambda: {
        **{name: outliers.summary for name, outliers in OUTLIERS.items()},
        "DATASET": "the test part of any dataset of the same shape",
    },
    "metrics": lambda: {name: metric.summary for name, metric in {**METRICS, **POOLED}.items()},
    "datasets": lambda: {name: _module_line(load) for name, load in DATASETS.items()},
    "models": lambda: {name: summary_line(make) for name, make in MODELS.items()},
}


class Setting(NamedTuple):
    """One setting of a method, as text."""

    name: str
    type: str
    default: str
    description: str


def method_settings(method: Any) -> list[Setting]:
    """Return the settings of a method's class, in the order in which they are defined."""
    hints, descriptions = get_type_hints(method, include_extras=True), described_settings(method)
    return [
        Setting(field.name, type_text(hints[field.name]), default_text(field), description)
        for field, description in zip(
            dataclasses.fields(method), descriptions.values(), strict=True
        )
    ]


def type_text(hint: Any) -> str:
    """Return the type of a setting as a user would write its value: in TOML None is "none"."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_text(inner[0])
    if origin is Literal:
        return " | ".join(map(json.dumps, inner))
    if origin in (Union, UnionType):
        return " | ".join(map(type_text, inner))
    if origin in (tuple, list):
        return f"list of {type_text(inner[0])}"
    return "none" if hint is NoneType else str(getattr(hint, "__name__", hint))


def default_text(field: dataclasses.Field[Any]) -> str:
    """Return the default of a setting as it would be written in TOML, empty if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return json.dumps(field.default_factory(), default=method_name)
    if field.default is dataclasses.MISSING:
        return ""
    return "none" if field.default is None else json.dumps(field.default, default=method_name)
