"""Rows of trials as tuning stores them, and which of them can be chosen."""

from collections.abc import Iterable
from typing import Any

TrialRow = dict[str, Any]


def is_eligible(row: TrialRow) -> bool:
    """Return whether a trial can be chosen: complete, accurate enough, and calibrated at home."""
    return row["state"] == "complete" and not shortfalls(row)


def shortfalls(row: TrialRow) -> dict[str, float]:
    """Return by how much a complete trial misses each requirement; empty where it meets all."""
    missing = {
        "accuracy": row["required_accuracy"] - row["accuracy"],
        "clean_ece": row.get("clean_ece", 0.0) - row.get("allowed_clean_ece", 1.0),
    }
    return {name: lacking for name, lacking in missing.items() if lacking > 0}


def best_of(rows: Iterable[TrialRow]) -> dict[str, TrialRow]:
    """Return the best eligible trial of each method, the first of equal ones."""
    best: dict[str, TrialRow] = {}
    for row in filter(is_eligible, rows):
        known = best.get(row["method"])
        if known is None or row["criterion"] < known["criterion"]:
            best[row["method"]] = row
    return best
