"""What the gradient mode and the share of calibrated batches cost, and what they bring, on digits.

    python -m benchmarks.share_of_batches results/digits/shares.jsonl

The study's own settings but for the two; one line per run: its test figures and the CPU seconds
of its training, one thread. An interrupted run resumes. The table goes into
docs/cost.md.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.choose_settings import read
from benchmarks.pages import write_between
from falconcal.data import Dataset, load_dataset
from falconcal.evaluation.under_shift import evaluate
from falconcal.methods import METHODS
from falconcal.models import make_model
from falconcal.studies import find_study

GRADIENTS, SHARES, SEEDS = ("exact", "shared"), (1.0, 0.5, 0.25, 0.1), (0, 1, 2)
FIGURES = ("accuracy", "micro_ece", "macro_ece", "cpu_seconds")
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="JSON lines, one per run; appended to")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    rows = read(file)
    for gradient, share, seed in wanted(rows):
        rows.append(run(load_dataset("digits"), gradient, share, seed))
        print(json.dumps(rows[-1]), flush=True)
        with file.open("a") as lines:
            lines.write(json.dumps(rows[-1]) + "\n")
    write_page(rows)


def wanted(rows: list[Row]) -> Iterable[tuple[str, float, int]]:
    """Yield the missing runs, seed by seed; a plain run of each seed is the unit of cost."""
    kinds = [("plain", 0.0), *product(GRADIENTS, SHARES)]
    done = {(row["gradient"], row["share"], row["seed"]) for row in rows}
    return [(*kind, seed) for seed in SEEDS for kind in kinds if (*kind, seed) not in done]


def run(digits: Dataset, gradient: str, share: float, seed: int) -> Row:
    """Train and measure one setting; plain is FALCON's own learning rate without its steps."""
    study = find_study("digits")
    settings = {**study.methods["falcon"], "keep": "last", "seed": seed}
    if gradient == "plain":
        names = ("epochs", "learning_rate", "l2_weight", "dropout", "keep", "seed")
        method = METHODS["dropout"](**{name: settings[name] for name in names})
    else:
        method = METHODS["falcon"](**settings, gradient=gradient, calibration_fraction=share)
    model = make_model("lenet", digits, seed)
    batches = digits.train.batches(study.batch_size, shuffle=True, seed=seed)
    started = time.process_time()
    method.fit(model, batches, digits.validation.batches(500))
    seconds = time.process_time() - started
    found = figures(model, digits)
    return {"gradient": gradient, "share": share, "seed": seed, "cpu_seconds": seconds, **found}


def figures(model: torch.nn.Module, digits: Dataset) -> dict[str, float]:
    study = find_study("digits")
    shifts = [shift for shift in study.all_shifts() if shift.name in study.shifts]
    rows = evaluate(model, digits.test, shifts)
    means = {
        name: float(rows.filter(rows["metric"] == name)["value"].mean())  # type: ignore[arg-type]
        for name in ("micro_ece", "macro_ece")
    }
    right = rows.filter((rows["shift"] == "clean") & (rows["metric"] == "accuracy"))["value"][0]
    return {"accuracy": right, **means}


def write_page(rows: list[Row]) -> None:
    """Put the table into the page on cost."""
    plain = _mean(rows, "plain", 0.0, "cpu_seconds")
    lines = [
        "| gradient | share | cost | accuracy | mean micro ECE | mean macro ECE |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for gradient, share in [("plain", 0.0), *product(GRADIENTS, SHARES)]:
        cost = _mean(rows, gradient, share, "cpu_seconds") / plain
        cells = [f"{_shown(rows, gradient, share, name)}" for name in FIGURES[:3]]
        lines.append(f"| {gradient} | {share} | {cost:.2f} | {' | '.join(cells)} |")
    write_between("docs/cost.md", "shares", "share_of_batches", "\n".join(lines))


def _of(rows: list[Row], gradient: str, share: float, name: str) -> list[float]:
    return [row[name] for row in rows if (row["gradient"], row["share"]) == (gradient, share)]


def _mean(rows: list[Row], gradient: str, share: float, name: str) -> float:
    return statistics.fmean(_of(rows, gradient, share, name))


def _shown(rows: list[Row], gradient: str, share: float, name: str) -> str:
    values = _of(rows, gradient, share, name)
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


if __name__ == "__main__":
    main()
