"""Whether BatchNorm's running statistics should see perturbed batches, on digits.

    python -m benchmarks.batch_norm results/cost/batch_norm.json

A small network with batch norm, three seeds: plain, FALCON whose perturbed batches the statistics
see too (as in the authors' code), and FALCON whose statistics see clean batches alone. The last
epoch is measured. The table goes into docs/training.md.
"""

import argparse
import json
import statistics
import warnings
from pathlib import Path

import torch
from torch import nn

from benchmarks.pages import write_between
from falconcal import SHIFTS, Falcon, L2Dropout, evaluate, load_dataset
from falconcal.core.method import Method

EPOCHS, RATE, SEEDS = 15, 3e-3, (0, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # that a training collapsed is what is measured here
    found = {name: [run(name, seed) for seed in SEEDS] for name in ("plain", "both", "clean")}
    print(json.dumps(found, indent=1))
    file.write_text(json.dumps(found, indent=1) + "\n")
    write_page(found)


def run(name: str, seed: int) -> dict[str, float]:
    digits = load_dataset("digits")
    batches = digits.train.batches(100, shuffle=True, seed=seed)
    model = method(name, seed).fit(network(seed), batches, digits.validation.batches(500))
    rows = evaluate(model, digits.test, [SHIFTS["rot_right"], SHIFTS["xzoom"]])
    values = {
        (row["shift"], row["metric"]): row["value"] for row in rows.to_dicts() if not row["level"]
    }
    return {
        "accuracy": values["clean", "accuracy"],
        "clean ECE": values["clean", "ece"],
        "rotation, micro ECE": values["rot_right", "micro_ece"],
        "zoom, micro ECE": values["xzoom", "micro_ece"],
    }


def method(name: str, seed: int) -> Method:
    if name == "plain":
        return L2Dropout(epochs=EPOCHS, learning_rate=RATE, seed=seed)
    return Falcon(
        epochs=EPOCHS,
        learning_rate=RATE,
        seed=seed,
        entropy_weight=0.5,
        calibration_learning_rate=0.01,
        statistics=name,  # type: ignore[arg-type]
    )


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(4),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def write_page(found: dict[str, list[dict[str, float]]]) -> None:
    """Put the table into the page on training."""
    names = list(found["plain"][0])
    lines = [f"| statistics | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    for kind, runs in found.items():
        columns = [[one[name] for one in runs] for name in names]
        cells = [f"{statistics.fmean(c):.3f} ± {statistics.stdev(c):.3f}" for c in columns]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    write_between("docs/training.md", "batch norm", "batch_norm", "\n".join(lines))


if __name__ == "__main__":
    main()
