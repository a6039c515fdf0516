"""A study as settings, read from TOML and changed from the command line."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from falconcal.data import DATASETS
from falconcal.errors import UsageError, did_you_mean
from falconcal.methods import METHODS, Method
from falconcal.models import MODELS
from falconcal.registry import check_names, look_up
from falconcal.settings import Count, as_dict, settings
from falconcal.shifts import SHIFTS, Shift, find_shift
from falconcal.shifts.affine import Centre

Names = Annotated[tuple[str, ...], Field(strict=False)]


@settings
class Study:
    """What to train, on what, and under which shifts to measure it."""

    name: str
    title: str = ""
    dataset: str
    model: str
    batch_size: Count = 100
    seeds: Count = 1
    centre: Centre = "true"  # of the affine shifts
    shifts: Annotated[Names, Field(min_length=1)]  # the tested ones
    selection_shifts: Names = ()  # those that served to choose settings; reported apart
    methods: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]

    def method(self, name: str, seed: int = 0) -> Method:
        """Return a method of the study with its settings and a seed."""
        if "seed" in self.methods[name]:
            raise UsageError(f"methods.{name}: seed is set by the run; use --seeds.")
        return look_up("method", name, METHODS)(**self.methods[name], seed=seed)

    def all_shifts(self) -> list[Shift]:
        return [find_shift(name, self.centre) for name in (*self.shifts, *self.selection_shifts)]

    def resolved(self) -> dict[str, Any]:
        """Return the study as plain data, every method with all its settings, defaults too."""
        methods = {name: as_dict(self.method(name)) for name in self.methods}
        for method in methods.values():
            del method["seed"]
        return {**as_dict(self), "methods": methods}


def read_study(text: str, source: str, changes: Iterable[str] = ()) -> Study:
    """Return a study from TOML text with ``key=value`` changes, every name in it checked."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not valid TOML: {error}.") from None
    for change in changes:
        _apply(values, change)
    study = Study(**values)
    check_names("dataset", [study.dataset], DATASETS)
    check_names("model", [study.model], MODELS)
    check_names("shift", (*study.shifts, *study.selection_shifts), SHIFTS)
    check_names("method", study.methods, METHODS)
    study.resolved()  # makes every method once, so that a wrong setting is found before a run
    return study


def read_study_file(path: Path, changes: Iterable[str] = ()) -> Study:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read study {path}: {error}.") from None
    return read_study(text, str(path), changes)


def _apply(values: dict[str, Any], change: str) -> None:
    """Put one ``key=value`` in; ``falcon.epochs`` is short for ``methods.falcon.epochs``."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set expects key=value, got {change!r}; for example falcon.epochs=10.")
    parts = key.strip().split(".")
    if len(parts) == 2 and parts[0] != "methods":
        parts.insert(0, "methods")
    if parts[0] == "methods" and len(parts) != 3:
        raise UsageError(f"--set {key}: a method's setting is written METHOD.SETTING=value.")
    _check_key(values, parts, key)
    table = values
    for part in parts[:-1]:
        table = table[part]
    table[parts[-1]] = _value(text.strip())


def _check_key(values: dict[str, Any], parts: list[str], key: str) -> None:
    if parts[0] == "methods":
        methods = values.get("methods", {})
        if parts[1] not in methods:
            raise UsageError(
                f"--set {key}: the study has no method {parts[1]!r}. "
                f"{did_you_mean(parts[1], methods)}"
            )
    elif parts[0] not in Study.__dataclass_fields__:
        raise UsageError(
            f"--set {key}: unknown setting. {did_you_mean(parts[0], Study.__dataclass_fields__)} "
            "A method's setting is written METHOD.SETTING=value, for example falcon.epochs=10."
        )


def _value(text: str) -> Any:
    """Read a value as TOML would, and anything else as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
