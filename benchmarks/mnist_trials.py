"""The tables of the page on how settings were chosen on MNIST, from the trials that were kept."""

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.choose_settings import read
from benchmarks.pages import table
from falconcal.io.trial_rows import best_of, is_eligible
from falconcal.report.charts.trial_charts import rank_correlations

FAMILIES = ("clean", "fgsm", "gaussian_noise", "gaussian_blur", "contrast")
WHOLE = ("whole", "beyond", "wider")  # the searches at the budget of a run of five epochs
# of a trial, where it is scored on test data
TESTED = ("accuracy", "ece", "micro_ece", "macro_ece")


def best_row(folder: Path) -> str:
    """Return which of FALCON's rows past the paper validation data prefers."""
    best = best_of(read(folder / "trials.jsonl"))
    return min(
        (name for name in best if name.startswith("falcon_")),
        key=lambda name: best[name]["criterion"],
    )


def effort(folder: Path) -> dict[str, Any]:
    """Return how many trials, ended ones, the methods had: alike, and those that had more.

    Searches at the budget of a run count, and so does one that was done again.
    """
    files = sorted(folder.glob("*trials.jsonl"))
    rows = [row for file in files for row in read(file) if row["state"] == "complete"]
    counts = Counter(row["method"] for row in rows)
    alike = counts["falcon"]
    family = {name: count for name, count in counts.items() if name.startswith("falcon")}
    return {
        "alike": alike,
        "more": {name: count for name, count in counts.items() if count > alike},
        "family": sum(family.values()),
        "rows": len(family),
    }


def trials(folder: Path) -> str:
    """Return for every method how many trials there were and what the best of them found."""
    rows, lines = read(folder / "trials.jsonl"), []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method and row["state"] == "complete"]
        best = best_of(own).get(method)
        counts = [str(len(own)), str(sum(map(is_eligible, own)))]
        lines.append([method, *counts, *(_best_cells(best) if best else ["none", "", "", ""])])
    heading = ["method", "trials", "accurate enough", "criterion", "accuracy", "test: micro ECE"]
    return table([*heading, "chosen"], lines)


def _best_cells(row: dict[str, Any]) -> list[str]:
    settings = ", ".join(f"{name} {_shown(value)}" for name, value in row["settings"].items())
    figures = (row["criterion"], row["accuracy"], row["test"]["micro_ece"])
    return [*(f"{value:.3f}" for value in figures), settings]


def whole_trials(folder: Path, search: str) -> str:
    """Return the trials of a search that cost as much as runs of five epochs."""
    rows = read(folder / f"{search}_trials.jsonl")
    lines = [
        [", ".join(f"{name} {_shown(value)}" for name, value in row["settings"].items()),
         str(row["epoch"]), f"{row['criterion']:.3f}", f"{row['accuracy']:.4f}",
         "yes" if is_eligible(row) else "no", *(f"{row['test'][name]:.3f}" for name in TESTED)]
        for row in sorted(rows, key=lambda row: row["criterion"])
    ]  # fmt: skip
    heading = ["settings", "epoch kept", "criterion", "accuracy", "enough"]
    return table([*heading, *(f"test: {name.replace('_', ' ')}" for name in TESTED)], lines)


def read_whole(folder: Path) -> list[dict[str, Any]]:
    """Return the trials of all searches at the budget of a run."""
    return [row for search in WHOLE for row in read(folder / f"{search}_trials.jsonl")]


def lowest_whole(folder: Path) -> dict[str, Any]:
    """Return which of these, by test data, validation data should have chosen."""
    rows = filter(is_eligible, read_whole(folder))
    return min(rows, key=lambda row: float(row["test"]["micro_ece"]))


def _shown(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return " + ".join(value) if isinstance(value[0], str) else f"{value[0]} to {value[-1]}"


def families(folder: Path) -> str:
    """Return the criterion of the chosen trials family by family."""
    rows = [
        [method, *(f"{best['families'][name]:.3f}" for name in FAMILIES)]
        for method, best in best_of(read(folder / "trials.jsonl")).items()
    ]
    return table(["method", *FAMILIES], rows)


def correlations(folder: Path) -> str:
    """Return how well the criterion ranks what is tested."""
    found = rank_correlations(read(folder / "trials.jsonl"))
    whole = rank_correlations(read_whole(folder))["all methods, accurate enough"]
    found["searches at a run's budget, accurate enough"] = whole
    rows = [[name, f"{value:+.2f}", str(count)] for name, (value, count) in found.items()]
    return table(["trials of", "Spearman's correlation", "trials"], rows)
