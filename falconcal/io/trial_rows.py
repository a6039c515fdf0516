"""Rows of trials as tuning stores them, and which of them can be chosen."""

from collections.abc import Iterable
from typing import Any

TrialRow = dict[str, Any]


def is_eligible(row: TrialRow) -> bool:
    """Return whether a trial can be chosen: complete, accurate enough, and calibrated at home."""
    if row["state"] != "complete" or row["accuracy"] < row["required_accuracy"]:
        return False
    return bool(row.get("clean_ece", 0.0) <= row.get("allowed_clean_ece", 1.0))


def best_of(rows: Iterable[TrialRow]) -> dict[str, TrialRow]:
    """Return the best eligible trial of each method, the first of equal ones."""
    best: dict[str, TrialRow] = {}
    for row in filter(is_eligible, rows):
        known = best.get(row["method"])
        if known is None or row["criterion"] < known["criterion"]:
            best[row["method"]] = row
    return best
