"""Choose the settings of the study digits on validation data alone, and keep every trial.

    python benchmarks/choose_settings.py results/digits/trials.jsonl

Random search, the same number of trials for each method. The criterion is that of
``falconcal.selection``: FGSM images come from one fixed reference model, and noise, blur and
contrast stand in for the nine tested shifts. The four best trials of a method are repeated with two
more seeds, and the lowest mean criterion among those that are accurate enough wins. The figures on
test data stand beside each trial for one purpose: to see afterwards how well the criterion ranks
the nine shifts. Nothing is chosen by them. Stopped and started again, the search goes on where it
was.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import polars
import torch
from torch import nn

from falconcal.data import Dataset, load_dataset
from falconcal.evaluation import evaluate
from falconcal.methods import METHODS
from falconcal.models import make_model
from falconcal.selection import ShiftedValidation, judge, shifted_validation
from falconcal.shifts import affine_shifts, plain_shifts

TRIALS, FINALISTS, BATCH = 20, 4, 100
REFERENCE: dict[str, Any] = {"epochs": 30, "learning_rate": 1e-3, "dropout": 0.5}
COMMON: dict[str, list[Any]] = {
    "epochs": [15, 30],
    "dropout": [0.0, 0.5],
    "keep": ["last", "best"],
}
SPACES: dict[str, dict[str, list[Any]]] = {
    "dropout": {
        **COMMON,
        "learning_rate": [5e-4, 1e-3, 2e-3],
        "l2_weight": [0.0, 0.001, 0.005],
    },
    # learning rate and L2 are taken over from the baseline's choice
    "falcon": {
        **COMMON,
        "entropy_weight": [0.5, 1.0, 5.0, 10.0, 15.0, 30.0, 50.0],
        "calibration_learning_rate": [0.001, 0.01, 0.05, 0.1, 0.2, 0.4],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="JSON lines, one a trial; appended to")
    file = parser.parse_args().file
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    dataset = load_dataset("digits")
    validation = _validation(dataset, REFERENCE)
    baseline = search(file, dataset, "dropout", validation, {})
    # from here on the reference is the study's own dropout model, last epoch, seed 0
    validation = _validation(dataset, {**baseline, "keep": "last"})
    shared = {name: baseline[name] for name in ("learning_rate", "l2_weight")}
    search(file, dataset, "falcon", validation, shared)


def search(
    file: Path,
    dataset: Dataset,
    method: str,
    validation: ShiftedValidation,
    shared: dict[str, Any],
) -> dict[str, Any]:
    """Run the trials of a method that are not in the file yet and return the chosen settings."""
    draw = random.Random(f"digits/{method}")
    candidates = [
        shared | {name: draw.choice(values) for name, values in SPACES[method].items()}
        for _ in range(TRIALS)
    ]
    for settings in candidates:
        trial(file, dataset, method, settings, 0, validation)
    finalists = ranked(read(file), method, validation)[:FINALISTS]
    for settings in finalists:
        for seed in (1, 2):
            trial(file, dataset, method, settings, seed, validation)
    rows = [row for row in read(file) if row["settings"] in finalists]
    return ranked(rows, method, validation)[0]


def trial(
    file: Path,
    dataset: Dataset,
    method: str,
    settings: dict[str, Any],
    seed: int,
    validation: ShiftedValidation,
) -> None:
    """Train and judge one setting, and append what came of it."""
    key = {"method": method, "settings": settings, "seed": seed}
    if any(all(row[name] == value for name, value in key.items()) for row in read(file)):
        return
    model = _fit(dataset, method, {**settings, "seed": seed}, validation)
    judgement = judge(model, validation)
    row = {
        **key,
        "accuracy": judgement.accuracy,
        "criterion": judgement.criterion,
        "families": judgement.families,
        "test": _test_figures(model, dataset),
    }
    print(json.dumps(row), flush=True)
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def ranked(
    rows: list[dict[str, Any]], method: str, validation: ShiftedValidation
) -> list[dict[str, Any]]:
    """Return settings, best first: mean criterion over seeds, accurate ones before the others."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["method"] == method:
            groups.setdefault(json.dumps(row["settings"]), []).append(row)

    def order(group: list[dict[str, Any]]) -> tuple[bool, float]:
        accuracy = sum(row["accuracy"] for row in group) / len(group)
        criterion = sum(row["criterion"] for row in group) / len(group)
        return accuracy < validation.required_accuracy, criterion

    return [group[0]["settings"] for group in sorted(groups.values(), key=order)]


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _validation(dataset: Dataset, settings: dict[str, Any]) -> ShiftedValidation:
    reference = _fit(dataset, "dropout", settings, None)
    return shifted_validation(dataset.validation, reference, plain_shifts().values())


def _fit(
    dataset: Dataset, method: str, settings: dict[str, Any], validation: ShiftedValidation | None
) -> nn.Module:
    seed = settings.get("seed", 0)
    model = make_model("lenet", dataset, seed)
    batches = dataset.train.batches(BATCH, shuffle=True, seed=seed)
    made = METHODS[method](**settings)
    return made.fit(model, batches, validation or dataset.validation.batches(500))


def _test_figures(model: nn.Module, dataset: Dataset) -> dict[str, float]:
    rows = evaluate(model, dataset.test, affine_shifts("true").values())
    clean = rows.filter(polars.col("shift") == "clean")
    figures = {name: clean.filter(metric=name)["value"].item() for name in ("accuracy", "ece")}
    for name in ("micro_ece", "macro_ece"):
        figures[name] = float(rows.filter(metric=name)["value"].mean())  # type: ignore[arg-type]
    return figures


if __name__ == "__main__":
    main()
