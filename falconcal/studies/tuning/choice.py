"""What is chosen among the trials: the lowest criterion of those that meet the requirements."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import tomlkit

from falconcal.errors import UserError
from falconcal.io.atomic import write_text
from falconcal.io.trial_rows import TrialRow, best_of, shortfalls


class SettingsTables(Protocol):
    """Knows the TOML table in which the tuned settings of a method are written."""

    def table(self, settings: dict[str, Any]) -> dict[str, Any]: ...


def check_chosen(rows: Iterable[TrialRow], method: str) -> None:
    """Raise an error that says why when no trial of a method can be chosen."""
    rows = [row for row in rows if row["method"] == method]
    if method in best_of(rows):
        return
    complete = [row for row in rows if row["state"] == "complete"]
    if complete:
        nearest = min(complete, key=lambda row: sum(shortfalls(row).values()))
        raise UserError(
            f"no settings were chosen for {method}: no trial meets the requirements. The nearest, "
            f"trial {nearest['trial']}, has {_missed(nearest)}. Try more trials, other values, or "
            "more epochs."
        )
    reasons = ", ".join(dict.fromkeys(row["reason"] for row in rows)) or "there are no trials"
    raise UserError(f"no settings were chosen for {method}: no trial was completed ({reasons}).")


def _missed(row: TrialRow) -> str:
    """Return what a trial has and what is required, of each requirement that it misses."""
    words = {
        "accuracy": "validation accuracy {accuracy:.3f} (at least {required_accuracy:.3f})",
        "clean_ece": "clean ECE {clean_ece:.3f} (at most {allowed_clean_ece:.3f})",
    }
    return " and ".join(words[name].format(**row) for name in shortfalls(row))


def write_best(
    directory: Path, study: str, rows: list[TrialRow], targets: Mapping[str, SettingsTables]
) -> None:
    """Write best.toml, which ``falconcal run STUDY --settings`` reads."""
    sections = [f"# for: falconcal run {study} --settings best.toml\n"]
    for method, row in best_of(rows).items():
        table = _without_none(targets[method].table(row["settings"]))
        sections.append(_comment(row, rows) + tomlkit.dumps({"methods": {method: table}}))
    write_text(directory / "best.toml", "\n".join(sections))


def _comment(row: TrialRow, rows: list[TrialRow]) -> str:
    trials = {one["trial"] for one in rows if one["method"] == row["method"]}
    return (
        f"# trial {row['trial']}, one of {len(trials)}: criterion {row['criterion']:.4f}, "
        f"validation accuracy {row['accuracy']:.4f} (required {row['required_accuracy']:.4f})\n"
    )


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    """Leave out settings that are None: TOML has no such value, and the study's own applies."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if value is not None
    }
