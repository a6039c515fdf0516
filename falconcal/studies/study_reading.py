"""Studies read from TOML or from an output folder, changed from the command line, and checked."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from falconcal.core.registry import name_and_settings
from falconcal.core.settings import renamed_settings
from falconcal.core.trust import trusting
from falconcal.data import check_dataset
from falconcal.errors import UsageError
from falconcal.io.parsing import parse_toml
from falconcal.io.report_roles import read_roles
from falconcal.shifts import SHIFTS
from falconcal.studies.overrides import (
    merge,
    method_table,
    parse_override,
    set_value,
    tables_with_setting,
)
from falconcal.studies.study import KNOWN, Study
from falconcal.studies.study_checks import (
    check_study_methods,
    check_study_model,
    check_study_shifts,
    check_study_variants,
)
from falconcal.studies.variants import expand_sweeps, without

SMOKE = {"examples": 200, "levels": 2}  # of a smoke run, where the study has no other values


def stored_study(values: Mapping[str, Any], source: str, trust_code: Iterable[str] = ()) -> Study:
    """Return the study that an output folder's study.json holds."""
    known = {name: value for name, value in values.items() if name in Study.__dataclass_fields__}
    return _make_study({"criterion": "fixed_levels", **known}, source).trusting(trust_code)


def read_study(
    text: str,
    source: str,
    changes: Iterable[str] = (),
    settings: Path | None = None,
    smoke: bool = False,
    trust_code: Iterable[str] = (),
) -> Study:
    """Return a study from TOML text with ``key=value`` changes, every name in it checked.

    ``settings`` is a file that tuning wrote; its settings of methods replace the study's own.
    ``smoke`` makes the study small, by its table of that name. ``trust_code`` are the packages
    whose code the files may name; names in ``changes`` come from the caller and are trusted.
    """
    trust = trusting(trust_code)
    values = _parse(text, source)
    small = values.pop("smoke", {})
    if not isinstance(small, dict):
        raise UsageError(f"{source}: expected a table [smoke] of changes, got {small!r}.")
    expand_sweeps(values, source)
    if settings is not None:
        _apply_settings(values, settings)
    if smoke:
        _make_small(values, small, source)
    for key, value in map(parse_override, changes):
        set_value(values, key, value, KNOWN, "--set")
        trust = trust.typed(value)
    study = replace(_make_study(values, source), trust=trust)
    _check(study)
    return study


def _check(study: Study) -> None:
    """Refuse names that are not known and settings that do not fit together."""
    check_dataset(*name_and_settings("dataset", study.dataset), study.trust)
    check_study_model(study)
    study.own_drift.check()
    check_study_shifts(study)
    check_study_methods(study)
    check_study_variants(study)
    read_roles(study.report, study.methods, {*SHIFTS, *study.tested})


def _make_study(values: dict[str, Any], source: str) -> Study:
    try:
        return Study(**renamed_settings(Study.__dataclass_fields__, values))
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def read_study_file(
    path: Path,
    changes: Iterable[str] = (),
    settings: Path | None = None,
    smoke: bool = False,
    trust_code: Iterable[str] = (),
) -> Study:
    """Return a study from a TOML file, as ``read_study`` does."""
    return read_study(_read_text(path, "study"), str(path), changes, settings, smoke, trust_code)


def _read_text(path: Path, kind: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {kind} {path}: {error}.") from None


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{source} is not valid TOML: {error}.") from None


def _apply_settings(values: dict[str, Any], path: Path) -> None:
    """Replace the settings of methods by those of a file."""
    stated = _parse(_read_text(path, "settings"), str(path))
    tables = stated.get("methods")
    if set(stated) != {"methods"} or not isinstance(tables, dict):
        raise UsageError(
            f"{path}: expected tables [methods.NAME] and nothing else, as falconcal tune writes "
            f"them, got {', '.join(stated) or 'none'}."
        )
    for name, table in tables.items():
        merge(method_table(values, name, f"{path}: methods.{name}"), table, f"{path}: {name}")


def _make_small(values: dict[str, Any], small: dict[str, Any], source: str) -> None:
    """Train every method for one epoch, and apply the study's table ``[smoke]``."""
    values["title"] = f"Smoke run, no result: {values.get('title', '')}"
    for table in tables_with_setting(values, "epochs"):
        table["epochs"] = 1
    for key, value in {**SMOKE, **small}.items():
        set_value(values, key, value, KNOWN, f"{source}: [smoke]")
    if "variants" in values:
        values["variants"] = without(values["variants"], small)
