"""A study as settings, read from TOML and changed from the command line."""

import copy
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from falconcal.data import check_dataset
from falconcal.errors import UsageError, did_you_mean, unknown
from falconcal.method import Method, chooses_epoch, innermost, seeded
from falconcal.methods import METHODS, make_method, plain_settings
from falconcal.models import check_model
from falconcal.processes import with_started
from falconcal.registry import name_and_settings
from falconcal.settings import Count, as_dict, settings
from falconcal.shifts import (
    Ladder,
    Outliers,
    Shift,
    StoredShift,
    find_ladder,
    find_outliers,
    find_shift,
)
from falconcal.shifts.affine import Centre

TUNING = ("search", "tuning")  # tables for ``falconcal tune`` alone; no run depends on them
# left out where empty: folders of before them stay valid
LATER = {"outliers", "stored", "examples", "test_examples", "levels"}
REFERENCE = "dropout"  # the method whose seed 0 model perturbs the validation data
ENTRIES = ("dataset", "model")
SMOKE = {"examples": 200, "levels": 2}  # a smoke run, unless the study's table says otherwise
MethodName = Annotated[str, Field(pattern=r"^\w[\w.:-]*$")]
Entry = str | dict[str, Any]  # a name, or a table of a name and settings
Names = Annotated[tuple[str, ...], Field(strict=False)]


@settings
class Study:
    """What to train, on what, and under which shifts to measure it."""

    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    title: str = ""
    dataset: Entry
    model: Entry
    batch_size: Count = 100
    seeds: Count = 1
    centre: Centre = "middle"  # of the affine shifts
    shifts: Annotated[Names, Field(min_length=1)]  # the tested ones
    selection_shifts: Names = ()  # those that served to choose settings; reported apart
    outliers: Names = ()  # sets of no known class: datasets, or names of the table
    stored: str | None = None  # the folder of stored shifts, as ``cifar10_c:fog``
    examples: Count | None = None  # so many of each part alone, for a quick look
    test_examples: Count | None = None  # so many of the test data alone, where predictions are dear
    levels: Count | None = None  # so many of each shift alone, from the first
    # by the name that results bear: the method's own, or any other beside a setting ``method``
    methods: Annotated[dict[MethodName, dict[str, Any]], Field(min_length=1)]
    search: dict[str, dict[str, Any]] = Field(default_factory=dict)  # what tuning tries, by method
    tuning: dict[str, Any] = Field(default_factory=dict)  # what a trial of it may cost

    def method(self, name: str, seed: int = 0) -> Method:
        """Return a method of the study with its settings and a seed."""
        values = self._written_out({"method": name, **self.methods[name]}, (name,))
        _check_seedless(values, f"methods.{name}")
        return seeded(make_method(values), seed)

    def all_shifts(self) -> list[Ladder]:
        names = (*self.shifts, *self.selection_shifts)
        ladders = (find_ladder(name, self.centre, self.stored) for name in names)
        # shifted data on disk has the levels that it has
        return [self._cut(one) if isinstance(one, Shift) else one for one in ladders]

    def found(self, names: Iterable[str]) -> list[Shift]:
        """Return shifts that are made here by name, with the centre and the levels of the study."""
        return [self._cut(find_shift(name, self.centre)) for name in names]

    def _cut(self, shift: Shift) -> Shift:
        if self.levels is None:
            return shift
        return replace(shift, strengths=shift.strengths[: self.levels + 1])  # 0 is the clean one

    def all_outliers(self) -> list[Outliers]:
        found = [find_outliers(name) for name in self.outliers]
        return found if self.examples is None else [one.first(self.examples) for one in found]

    def resolved(self) -> dict[str, Any]:
        """Return the study as plain data, every method with all its settings, defaults too."""
        values = {
            name: value
            for name, value in as_dict(self).items()
            if name not in TUNING and (value or name not in LATER)
        }
        return {**values, "methods": {name: self._resolved(name) for name in self.methods}}

    def _resolved(self, name: str) -> dict[str, Any]:
        values = _seedless(plain_settings(self.method(name)))
        if "method" not in self.methods[name]:
            del values["method"]  # it is the name
        return values

    def _written_out(self, values: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        """Return settings in which every base is a table, also one given by name."""
        base = values.get("base")
        if isinstance(base, str):
            if base in inside:
                raise UsageError(f"methods.{base}: its base leads back to itself.")
            if base not in self.methods:
                raise unknown(f"base of methods.{inside[-1]}", base, self.methods)
            inside, base = (*inside, base), {"method": base, **self.methods[base]}
        if not isinstance(base, dict):
            return values
        return {**values, "base": self._written_out(base, inside)}


def placed(study: Study, where: Mapping[str, Any]) -> Study:
    """Return the study with every training where it is asked for: devices, precision and such."""
    where = with_started({name: value for name, value in where.items() if value is not None})
    methods = copy.deepcopy(study.methods)
    for name, table in methods.items():
        while isinstance(table.get("base"), dict):
            table = table["base"]
        if not isinstance(table.get("base"), str):  # a base by name is changed under its own name
            trained = innermost(study.method(name))
            table |= {key: value for key, value in where.items() if hasattr(trained, key)}
    changed = replace(study, methods=methods)
    _check_methods(changed)
    return changed


def read_study(
    text: str,
    source: str,
    changes: Iterable[str] = (),
    settings: Path | None = None,
    smoke: bool = False,
) -> Study:
    """Return a study from TOML text with ``key=value`` changes, every name in it checked.

    ``settings`` is a file as tuning writes it; what it says of methods stands before the study's.
    ``smoke`` makes the study small, by its table of that name.
    """
    values = _parsed(text, source)
    small = values.pop("smoke", {})
    if settings is not None:
        _take_over(values, settings)
    if smoke:
        _make_small(values, small, source)
    for change in changes:
        _apply(values, change)
    study = Study(**values)
    dataset, dataset_settings = name_and_settings("dataset", study.dataset)
    check_dataset(dataset, **dataset_settings)
    model, model_settings = name_and_settings("model", study.model)
    check_model(model, **model_settings)
    _check_shifts(study)
    _check_methods(study)
    return study


def read_study_file(
    path: Path, changes: Iterable[str] = (), settings: Path | None = None, smoke: bool = False
) -> Study:
    return read_study(_text(path, "study"), str(path), changes, settings, smoke)


def _text(path: Path, kind: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {kind} {path}: {error}.") from None


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not valid TOML: {error}.") from None


def _take_over(values: dict[str, Any], path: Path) -> None:
    """Put the settings of methods that a file states in the place of the study's own."""
    stated = _parsed(_text(path, "settings"), str(path))
    tables = stated.get("methods")
    if set(stated) != {"methods"} or not isinstance(tables, dict):
        raise UsageError(
            f"{path}: expected tables [methods.NAME] and nothing else, as falconcal tune writes "
            f"them, got {', '.join(stated) or 'none'}."
        )
    for name, table in tables.items():
        _merge(_method_table(values, name, f"{path}: methods.{name}"), table, f"{path}: {name}")


def _merge(table: dict[str, Any], stated: Any, place: str) -> None:
    if not isinstance(stated, dict):
        raise UsageError(f"{place}: expected a table of settings, got {stated!r}.")
    for setting, value in stated.items():
        if setting == "base" and isinstance(value, dict):
            _merge(_base_table(table.setdefault("base", {}), place), value, f"{place}.base")
        else:
            table[setting] = value


def _make_small(values: dict[str, Any], small: Any, source: str) -> None:
    """Train every method for one epoch, and change what the table for smoke runs says."""
    if not isinstance(small, dict):
        raise UsageError(f"{source}: expected a table [smoke] of changes, got {small!r}.")
    values["title"] = f"Smoke run, no result: {values.get('title', '')}"
    methods = values.get("methods")
    for name, table in methods.items() if isinstance(methods, dict) else ():
        _shorten(table, name)
    for key, value in {**SMOKE, **small}.items():
        _put(values, key, value)


def _shorten(table: Any, name: Any) -> None:
    """Give a method one epoch, and so the base inside it; what is no method is refused later."""
    if not isinstance(table, dict):
        return
    kind = METHODS.get(table.get("method", name))
    if "epochs" in getattr(kind, "__dataclass_fields__", ()):
        table["epochs"] = 1
    _shorten(table.get("base"), None)


def _apply(values: dict[str, Any], change: str) -> None:
    """Put one ``key=value`` of the command line in."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set expects key=value, got {change!r}; for example falcon.epochs=10.")
    _put(values, key, _value(text.strip()))


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    """Put one value in; ``falcon.epochs`` is short for ``methods.falcon.epochs``.

    ``dataset`` and ``model`` have settings too: ``model.hidden``.
    """
    method, dot, setting = key.strip().removeprefix("methods.").rpartition(".")
    if not dot:
        _check_key(setting, key)
        table = values
    elif method in ENTRIES and key.strip().startswith(f"{method}."):
        table = _entry_table(values, method)
    else:
        table = _table(values, method, f"--set {key}")
    table[setting] = value


def _entry_table(values: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the table of the dataset or the model, made of its name where that stood alone."""
    name, settings = name_and_settings(kind, values.get(kind, {}))
    values[kind] = {"name": name, **settings}
    table: dict[str, Any] = values[kind]
    return table


def _table(values: dict[str, Any], name: str, key: str) -> dict[str, Any]:
    """Return the table that a name leads to: of a method, or one of those for tuning."""
    kind, _, method = name.partition(".")
    if kind not in TUNING or kind in values.get("methods", {}):
        return _method_table(values, name, key)
    table = values.setdefault(kind, {})
    if method and isinstance(table, dict):
        table = table.setdefault(method, {})
    if not isinstance(table, dict):
        raise UsageError(f"{key}: expected {name} to be a table, got {table!r}.")
    return table


def _method_table(values: dict[str, Any], method: str, key: str) -> dict[str, Any]:
    """Return the settings of a method, or with ``METHOD.base`` those of the base inside it."""
    if method.endswith(".base"):
        outer = _method_table(values, method.removesuffix(".base"), key)
        return _base_table(outer.get("base"), key)
    methods = values.get("methods")
    methods = methods if isinstance(methods, dict) else {}
    table = methods.get(method)
    if not isinstance(table, dict):
        raise UsageError(
            f"{key}: the study has no method {method!r}. {did_you_mean(method, methods)}"
        )
    return table


def _base_table(base: Any, key: str) -> dict[str, Any]:
    if not isinstance(base, dict):
        raise UsageError(
            f"{key}: the base is {base!r}, no table of its own; change the settings of that "
            "method of the study instead."
        )
    return base


def _check_key(setting: str, key: str) -> None:
    known = [name for name in Study.__dataclass_fields__ if name not in ("methods", *TUNING)]
    if setting not in known:
        raise UsageError(
            f"--set {key}: unknown setting. {did_you_mean(setting, known)} "
            "A method's setting is written METHOD.SETTING=value, for example falcon.epochs=10."
        )


def _check_seedless(values: dict[str, Any], place: str) -> None:
    if "seed" in values:
        raise UsageError(f"{place}: seed is set by the run; use --seeds.")
    if isinstance(values.get("base"), dict):
        _check_seedless(values["base"], f"{place}.base")


def _seedless(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the seeds, which are the run's, in any base too."""
    return {
        name: _seedless(value) if name == "base" and value is not None else value
        for name, value in values.items()
        if name != "seed"
    }


def _check_shifts(study: Study) -> None:
    names = (*study.shifts, *study.selection_shifts, *study.outliers)
    study.all_outliers()  # finds each of them
    for shift in study.all_shifts():
        if isinstance(shift, StoredShift) and shift.name in study.selection_shifts:
            raise UsageError(
                f"shift {shift.name!r} is made of test images, so no settings can be chosen on it."
            )
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"shift {name!r} is named twice; a shift is either tested or served to choose "
                "settings, and counts once."
            )


def _check_methods(study: Study) -> None:
    """Make every method once, so that a wrong setting is found before a run."""
    for name in study.methods:
        if name in METHODS and study.methods[name].get("method", name) != name:
            raise UsageError(f"methods.{name} is the name of another method: choose a free one.")
        trained = innermost(study.method(name))
        if hasattr(trained, "base"):
            raise UsageError(
                f'methods.{name}: expected base = "METHOD", a method of the study that trains '
                "what is calibrated, or a table base of its own; without it an untrained network "
                "would be calibrated."
            )
        if chooses_epoch(trained) and REFERENCE not in study.methods:
            raise UsageError(
                f'methods.{name}: keep = "best" or patience needs the method {REFERENCE} in the '
                "study, whose model perturbs the validation data."
            )


def _value(text: str) -> Any:
    """Read a value as TOML would, and anything else as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
