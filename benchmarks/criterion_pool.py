"""Networks of many settings, with all that a criterion might choose them by, and how they test.

    python -m benchmarks.criterion_pool fashion_mnist runs/pool/fashion_mnist
    python -m benchmarks.criterion_pool digits runs/pool/digits
    python -m benchmarks.criterion_pool fashion_mnist_longer runs/pool/fashion_mnist_longer
    python -m benchmarks.criterion_pool mnist runs/pool/mnist

Trains FALCON with settings drawn from a grid, and a few baselines, each for a short time. Keeps the
weights in the folder, so that a later criterion can be tried on them, and one row per network in
``results/criterion/DATASET.jsonl``: on validation images the ECE at every matched level of every
candidate family, FGSM and the old criterion's shifts at their own levels; on test images accuracy,
clean ECE, and micro and macro ECE of each of the nine shifts. An interrupted pool resumes.
Fashion-MNIST and digits are development data: the criterion is chosen on them. MNIST had no part in
the choice; it is measured once, to confirm it or not.
"""

import argparse
import json
import random
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import polars
import torch
from torch import nn

from benchmarks.pages import ROOT
from falconcal.core.method import build_untrained
from falconcal.data import Dataset, load_dataset, sample
from falconcal.evaluation.under_shift import evaluate
from falconcal.methods import make_method
from falconcal.metrics import expected_calibration_error
from falconcal.models import make_model
from falconcal.shifts import SHIFTS, affine_shifts, noise_blur_contrast_shifts
from falconcal.studies.run_files import is_whole, load_weights, save_weights
from falconcal.training.criterion import (
    CRITERIA,
    FIXED_LEVELS,
    ShiftedValidation,
    level_scores,
    shifted_validation,
)

KEPT = ROOT / "results" / "criterion"
CANDIDATES = (
    "elastic_warp", "patch_shuffle", "occlusion", "background_lines", "mixed_images",
    "gaussian_noise", "gaussian_blur", "contrast", "speckle", "swirl", "wave", "row_jitter",
)  # fmt: skip
Settings = dict[str, Any]
GRID = {
    "dropout": [0.0, 0.5],
    "entropy_weight": [0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 50.0],
    "calibration_learning_rate": [0.005, 0.02, 0.05, 0.1, 0.3],
}
BASELINES: list[Settings] = [
    {"method": "dropout", "dropout": 0.0, "learning_rate": 5e-4},
    {"method": "dropout", "dropout": 0.5, "learning_rate": 1e-3, "l2_weight": 0.001},
    {"method": "label_smoothing", "smoothing": 0.05},
    {"method": "label_smoothing", "smoothing": 0.2},
    {"method": "focal", "gamma": 2.0},
    {"method": "focal", "gamma": 5.0},
    {"method": "mixup", "alpha": 0.2},
    {"method": "mixup", "alpha": 1.0},
    {"method": "evidential", "evidence": "softplus", "divergence_weight": 0.2},
    {"method": "evidential", "evidence": "exp", "divergence_weight": 1.0},
]


@dataclass(frozen=True)
class Budget:
    """How long each network is trained, and on how many images it is judged and tested."""

    epochs: int
    examples: int | None
    validation_examples: int | None
    test_examples: int | None
    falcon_settings: int
    centre: str = "keras"
    dataset: str = ""  # where the pool has another name
    learning_rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3)


BUDGETS = {
    "digits": Budget(30, None, None, None, 30, "middle"),
    "fashion_mnist": Budget(4, 15_000, 1000, 1000, 30),
    "fashion_mnist_longer": Budget(
        8, 15_000, 1000, 1000, 16, dataset="fashion_mnist", learning_rates=(1e-3, 2e-3)
    ),
    "mnist": Budget(4, 15_000, 1000, 1000, 40),
}
REFERENCE: Settings = {"method": "dropout", "dropout": 0.5, "learning_rate": 1e-3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=BUDGETS)
    parser.add_argument("folder", type=Path, help="where weights are kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    pool = Pool(arguments.dataset, arguments.folder)
    for number, settings in enumerate(pool.plan()):
        pool.add(number, settings)


class Pool:
    """The networks of one dataset: trained, judged and tested one after the other."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.budget = name, folder, BUDGETS[name]
        self.dataset = budgeted(load_dataset(self.budget.dataset or name), self.budget)
        self.rows = KEPT / f"{name}.jsonl"
        reference = self.network(-1, REFERENCE)
        shifts = [SHIFTS[name] for name in CANDIDATES]
        part = self.dataset.validation
        self.matched = shifted_validation(part, reference, shifts, None, CRITERIA["matched_levels"])
        old = noise_blur_contrast_shifts().values()
        self.fixed = shifted_validation(part, reference, old, None, FIXED_LEVELS)

    def plan(self) -> list[Settings]:
        """Return the settings: FALCON's, drawn from the grid, with baselines among them."""
        grid = {"learning_rate": self.budget.learning_rates, **GRID}
        points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        drawn = random.Random(self.name).sample(points, self.budget.falcon_settings)
        falcon = [{"method": "falcon", **point} for point in drawn]
        baselines = [{"learning_rate": 1e-3, **one} for one in BASELINES]
        return [one for pair in zip(falcon, baselines, strict=False) for one in pair] + falcon[
            len(baselines) :
        ]

    def add(self, number: int, settings: Settings) -> None:
        """Train, judge and test a network, unless its row is kept already."""
        if any(row["number"] == number for row in read(self.rows)):
            return
        started = time.process_time()
        model = self.network(number, settings)
        row = {
            "number": number,
            "settings": settings,
            **judged(model, self.matched, self.fixed),
            "test": tested(model, self.dataset, self.budget.centre),
            "cpu_seconds": round(time.process_time() - started, 1),
        }
        with self.rows.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        print(number, settings, row["accuracy"], row["test"]["micro_ece"], flush=True)

    def network(self, number: int, settings: Settings) -> nn.Module:
        """Return the network of these settings, from its file or trained now; -1: the reference."""
        method = make_method({**settings, "epochs": self.budget.epochs, "seed": number + 1})
        model = make_model("lenet", self.dataset, seed=number + 1)
        file = self.folder / f"{number}.safetensors"
        if is_whole(file):
            return load_weights(file, build_untrained(method, model)).eval()
        batches = self.dataset.training_batches(100, number + 1)
        trained = method.fit(model, batches, self.dataset.validation.batches(500))
        save_weights(file, trained)
        return trained


def budgeted(dataset: Dataset, budget: Budget) -> Dataset:
    """Return the dataset with as many examples per part as the budget allows."""
    return replace(
        dataset,
        train=sample(dataset.train, budget.examples),
        validation=sample(dataset.validation, budget.validation_examples),
        test=sample(dataset.test, budget.test_examples),
    )


def judged(
    model: nn.Module, matched: ShiftedValidation, fixed: ShiftedValidation
) -> dict[str, Any]:
    """Return accuracy and ECE on clean validation images, and ECE per family and level."""
    clean = matched.clean
    (home,) = level_scores(model, clean, [clean.inputs])
    families = {**fixed.families, **{f"matched {k}": v for k, v in matched.families.items()}}
    errors = {
        name: [expected_calibration_error(one) for one in level_scores(model, clean, levels)]
        for name, levels in families.items()
    }
    return {
        "accuracy": float(home.correct.double().mean()),
        "confidence": float(home.confidence.double().mean()),
        "clean_ece": expected_calibration_error(home),
        "required_accuracy": matched.required.accuracy,
        "allowed_ece": matched.required.clean_ece,
        "families": errors,
    }


def tested(model: nn.Module, dataset: Dataset, centre: str) -> dict[str, float]:
    """Return how a network does on test images: clean, and under each of the nine shifts."""
    shifts = affine_shifts(centre)  # type: ignore[arg-type]
    rows = evaluate(model, dataset.test, list(shifts.values()))
    clean = rows.filter(polars.col("shift") == "clean")
    found = {name: clean.filter(metric=name)["value"].item() for name in ("accuracy", "ece")}
    for name in ("micro_ece", "macro_ece"):
        values = dict(rows.filter(metric=name).select("shift", "value").iter_rows())
        found[name] = sum(values.values()) / len(values)
        found |= {f"{name} {shift}": value for shift, value in values.items()}
    return found


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    main()
