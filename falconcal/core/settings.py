"""Settings are frozen dataclasses, checked by pydantic whenever one is made.

A value that comes from Python, TOML, the command line or saved JSON passes the same check, so the
code that uses it need not check again.
"""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import (
    Annotated,
    Any,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import pydantic
from pydantic import Field

from falconcal.errors import UsageError, did_you_mean

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LearningRate = PositiveNumber
Fraction = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(gt=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
StrTuple = Annotated[tuple[str, ...], Field(strict=False)]
Strengths = Annotated[tuple[NonNegative, ...], Field(min_length=1, strict=False)]

SettingsT = TypeVar("SettingsT")
ResultT = TypeVar("ResultT")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[SettingsT]) -> type[SettingsT]:
    """Make a class a frozen, keyword-only dataclass whose values are checked.

    A string under a field describes it: ``described_settings`` returns it.
    """
    config = pydantic.ConfigDict(
        extra="forbid", strict=True, arbitrary_types_allowed=True, use_attribute_docstrings=True
    )
    decorate: Any = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=config)
    checked = decorate(cls)
    checked.__init__ = _readable(checked.__init__)
    return cast("type[SettingsT]", checked)


def described_settings(cls: type) -> dict[str, str]:
    """Return the description of each setting of a class by name, empty where there is none.

    pydantic keeps a description in the class whose source has it, so it is looked for in the
    class itself and then in those that it inherits from.
    """
    cls = getattr(cls, "func", cls)  # an entry of a table may fix some settings of a class
    fields_of_classes = [vars(base).get("__pydantic_fields__", {}) for base in cls.__mro__]
    return {
        setting.name: next(
            (
                description
                for fields in fields_of_classes
                if setting.name in fields and (description := fields[setting.name].description)
            ),
            "",
        )
        for setting in dataclasses.fields(cls)
    }


def call_checked(what: str, make: Callable[..., ResultT], *given: Any, **values: Any) -> ResultT:
    """Call a function with settings by name, checked by its annotations as settings are."""
    if not values:
        return make(*given)
    config = pydantic.ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        return pydantic.validate_call(config=config)(make)(*given, **values)
    except pydantic.ValidationError as error:
        raise UsageError(_explain(what, _optional(make), error)) from None


def check_settable(what: str, make: Callable[..., object], names: Iterable[str]) -> None:
    """Refuse names of settings that a function does not take, before it is called."""
    known = _optional(make)
    for name in names:
        if name not in known:
            raise UsageError(f"{what}: unknown setting {name!r}. {did_you_mean(name, known)}")


def _optional(make: Callable[..., object]) -> list[str]:
    parameters = inspect.signature(make).parameters.values()
    return [one.name for one in parameters if one.default is not inspect.Parameter.empty]


def as_dict(instance: Any) -> dict[str, Any]:
    """Return settings as plain data that JSON and TOML can hold."""
    return {
        field.name: _plain(getattr(instance, field.name)) for field in dataclasses.fields(instance)
    }


def with_none(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in which "none" is None where a setting may be None: TOML has no such value."""
    optional = {name for name, hint in get_type_hints(kind).items() if type(None) in get_args(hint)}
    return {
        name: None if value == "none" and name in optional else value
        for name, value in values.items()
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_dict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _readable(init: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor with pydantic's report turned into our own message."""

    @functools.wraps(init)
    def checked_init(self: Any, /, *args: Any, **values: Any) -> None:
        if args:
            raise UsageError(f"{type(self).__name__} takes settings by name, got {args[0]!r}.")
        try:
            init(self, **_with_present_names(self, values))
        except pydantic.ValidationError as error:
            known = [field.name for field in dataclasses.fields(self)]
            raise UsageError(_explain(type(self).__name__, known, error)) from None

    return checked_init


def _explain(what: str, known: list[str], error: pydantic.ValidationError) -> str:
    lines = [_explain_one(known, problem) for problem in error.errors(include_url=False)]
    return f"{what}: " + "; ".join(lines)


def _explain_one(known: list[str], problem: Any) -> str:
    setting = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "unexpected_keyword_argument":
        return f"unknown setting {setting!r}. {did_you_mean(setting, known)}"
    if problem["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{setting} is missing"  # the input of this problem is all other settings
    expected = problem["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return f"{setting} {expected}, got {problem['input']!r}"


RENAMED = {"share": "calibration_fraction", "judging_examples": "selection_examples"}  # old: new


def renamed_settings(known: Iterable[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under their present names, where ``known`` are those that are taken."""
    known = set(known)
    given = {}
    for name, value in values.items():
        new = RENAMED.get(name, name)
        renamed = name not in known and new in known
        if renamed and new in values:
            raise UsageError(f"expected {new} alone, got {name}, its old name, too: remove {name}.")
        given[new if renamed else name] = value
    return given


def _with_present_names(instance: Any, values: dict[str, Any]) -> dict[str, Any]:
    renamed = renamed_settings([field.name for field in dataclasses.fields(instance)], values)
    for name in values.keys() - renamed.keys():
        warnings.warn(f"{name} is now called {RENAMED[name]}.", FutureWarning, stacklevel=3)
    return renamed


def with_later_settings(
    kind: Any, stored: Mapping[str, Any], present: Mapping[str, Any]
) -> dict[str, Any]:
    """Return stored settings with the defaults of those that the class has got since.

    A setting that did not exist then has a default that changes nothing. ``present`` are the
    settings that they are compared with.
    """
    later = {}
    for field in dataclasses.fields(kind):
        if field.name in stored or field.name not in present:
            continue
        if field.default_factory is not dataclasses.MISSING:
            later[field.name] = _plain(field.default_factory())
        elif field.default is not dataclasses.MISSING:
            later[field.name] = _plain(field.default)
    return {**stored, **later}
