"""Choose settings for every method of the study digits_methods on validation data alone.

    python -m benchmarks.choose_methods

The same small random search for each method that trains: as many trials, as many epochs, one seed,
points drawn from a grid of the common settings and of its own. The criterion and the accuracy that
is required are those of ``falconcal.training.selection``: FGSM images come from one fixed reference
model, and noise, blur and contrast stand in for the nine tested shifts. Every trial is kept in
``results/digits_methods/trials.jsonl``; an interrupted search resumes.
Ensembles and recalibration have no search: they use the settings chosen for their inner method.
"""

import argparse
import json
import random
import time
from itertools import product
from typing import Any

import torch

from benchmarks.choose_settings import Grid, Settings, fit, read
from benchmarks.pages import ROOT
from falconcal.data import Dataset, load_dataset
from falconcal.shifts import noise_blur_contrast_shifts
from falconcal.training.criterion import ShiftedValidation, shifted_validation, validation_criterion

TRIALS_FILE = ROOT / "results" / "digits_methods" / "trials.jsonl"
TRIALS, EPOCHS, LONGER = 8, 10, 2  # the study trains so many times longer
REFERENCE: Settings = {"epochs": EPOCHS, "learning_rate": 1e-3, "dropout": 0.5}
COMMON: Grid = {
    "learning_rate": [5e-4, 1e-3, 2e-3],
    "l2_weight": [0.0, 0.001, 0.01],
    "dropout": [0.0, 0.5],
}
# L2 is refused where every weight has a prior; fewer draws than the study's thirty, for time
VARIATIONAL: Grid = {
    "learning_rate": [1e-3, 2e-3, 5e-3],
    "dropout": [0.0],
    "divergence_weight": [0.1, 0.3, 1.0],
    "samples": [5],
}
GRIDS: dict[str, Grid] = {
    "dropout": COMMON,
    "falcon": {
        **COMMON,
        "entropy_weight": [0.5, 5.0, 30.0],
        "calibration_learning_rate": [0.01, 0.03, 0.1],
    },
    "label_smoothing": {**COMMON, "smoothing": [0.05, 0.1, 0.2]},
    "focal": {**COMMON, "gamma": [1.0, 2.0, 3.0]},
    "mixup": {**COMMON, "alpha": [0.1, 0.2, 0.4]},
    # the paper's relu and squares die on this data: no evidence is left for any class
    "evidential": {
        **COMMON,
        "form": ["digamma"],
        "evidence": ["softplus"],
        "divergence_weight": [0.01, 0.1, 0.3],
    },
    "joint_gan": {**COMMON, "uniform_weight": [0.1, 1.0]},
    "adversarial": {**COMMON, "epsilon": [0.005, 0.01, 0.02]},
    "mc_dropout": {**COMMON, "dropout": [0.1, 0.2, 0.5]},
    "last_layer_svi": {**COMMON, "divergence_weight": [0.1, 0.3, 1.0], "samples": [30]},
    "svi": VARIATIONAL,
    # its steps are small while the flows find their way: more of them
    "mnf": {
        **VARIATIONAL,
        "epochs": [30],
        "learning_rate": [2e-3, 5e-3],
        "divergence_weight": [0.01, 0.1, 1.0],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="all if none is said")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each method")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_dataset("digits")
    reference = fit(dataset, "dropout", REFERENCE, None)
    validation = shifted_validation(
        dataset.validation, reference, noise_blur_contrast_shifts().values()
    )
    TRIALS_FILE.parent.mkdir(parents=True, exist_ok=True)
    for method in arguments.methods or GRIDS:
        for settings in points(method)[: arguments.trials]:
            run(dataset, validation, method, settings)
        print(f"{method}: {chosen(read(TRIALS_FILE), method)}", flush=True)


def points(method: str) -> list[Settings]:
    """Return the points that are tried, drawn from the method's grid, the same every time."""
    grid = GRIDS[method]
    everything = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    drawn = random.Random(f"digits_methods/{method}").sample(
        everything, min(TRIALS, len(everything))
    )
    return [{"epochs": EPOCHS, **point} for point in drawn]


def run(dataset: Dataset, validation: ShiftedValidation, method: str, settings: Settings) -> None:
    """Train and judge one setting, unless that was done, and keep the outcome."""
    done = [(row["method"], row["settings"]) for row in read(TRIALS_FILE)]
    if (method, settings) in done:
        return
    started = time.process_time()
    judgement = validation_criterion(fit(dataset, method, settings, None), validation)
    row = {
        "method": method,
        "settings": settings,
        "accuracy": judgement.accuracy,
        "required_accuracy": validation.required.accuracy,
        "criterion": judgement.criterion,
        "families": judgement.families,
        "seconds": round(time.process_time() - started, 1),
    }
    print(json.dumps(row), flush=True)
    with TRIALS_FILE.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def chosen(rows: list[dict[str, Any]], method: str) -> Settings:
    """Return the settings of the lowest criterion that are accurate enough, else the most so."""
    mine = [row for row in rows if row["method"] == method]
    enough = [row for row in mine if row["accuracy"] >= row["required_accuracy"]]
    if enough:
        best = min(enough, key=lambda row: float(row["criterion"]))
    else:
        best = max(mine, key=lambda row: float(row["accuracy"]))
    settings: Settings = best["settings"]
    return settings


def for_study(settings: Settings) -> Settings:
    """Return settings of a trial as the study has them: longer, with the method's own draws."""
    kept = {name: value for name, value in settings.items() if name != "samples"}
    return {**kept, "epochs": LONGER * settings["epochs"]}


if __name__ == "__main__":
    main()
