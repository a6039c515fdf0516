"""What is chosen of the trials: the lowest criterion among those that are accurate enough."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from falconcal.errors import UserError
from falconcal.io.atomic import write_text
from falconcal.io.trial_rows import TrialRow, best_of


class SettingsTables(Protocol):
    """Something that knows where settings stand under a method's name."""

    def table(self, settings: dict[str, Any]) -> dict[str, Any]: ...


def check_chosen(rows: Iterable[TrialRow], method: str) -> None:
    """Say so when nothing was chosen for a method, and why."""
    rows = [row for row in rows if row["method"] == method]
    if method in best_of(rows):
        return
    complete = [row for row in rows if row["state"] == "complete"]
    if complete:
        nearest = max(complete, key=lambda row: float(row["accuracy"]))
        raise UserError(
            f"nothing was chosen for {method}: no trial is accurate enough. The nearest has "
            f"validation accuracy {nearest['accuracy']:.3f}, required is "
            f"{nearest['required_accuracy']:.3f}. Try more trials, other values, or more epochs."
        )
    reasons = ", ".join(dict.fromkeys(row["reason"] for row in rows)) or "there is none"
    raise UserError(f"nothing was chosen for {method}: no trial was completed ({reasons}).")


def write_best(
    directory: Path, study: str, rows: list[TrialRow], places: Mapping[str, SettingsTables]
) -> None:
    """Write best.toml, which ``falconcal run STUDY --settings`` takes."""
    parts = [f"# for: falconcal run {study} --settings best.toml\n"]
    for method, row in best_of(rows).items():
        table = places[method].table(row["settings"])
        parts.append(_words(row, rows) + _toml(("methods", method), table))
    write_text(directory / "best.toml", "\n".join(parts))


def _words(row: TrialRow, rows: list[TrialRow]) -> str:
    trials = {one["trial"] for one in rows if one["method"] == row["method"]}
    return (
        f"# trial {row['trial']}, one of {len(trials)}: criterion {row['criterion']:.4f}, "
        f"validation accuracy {row['accuracy']:.4f} (required {row['required_accuracy']:.4f})\n"
    )


def _toml(path: tuple[str, ...], table: dict[str, Any]) -> str:
    """Return a table; what is not set, which TOML cannot say, is left to the study."""
    base = table.get("base")
    own = {key: value for key, value in table.items() if value is not None and key != "base"}
    lines = [f"{key} = {_value(value)}\n" for key, value in own.items()]
    text = f"[{'.'.join(map(_key, path))}]\n" + "".join(lines) if own else ""
    return text if base is None else text + _toml((*path, "base"), base)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
