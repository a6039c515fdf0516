"""What the settings of shift temperature do: clean share, stored examples, neighbours, precision.

    falconcal run digits --seeds 3 --methods falcon --out runs/digits-3
    python -m benchmarks.shift_temperature_settings runs/digits-3
    python -m benchmarks.shift_temperature_settings

Fits shift temperature to FALCON's models on digits with one setting changed at a time, three seeds,
and keeps one row per fit in ``results/promise/settings.jsonl``. Judged on validation data: the
calibration error on families that were left out of a fit, and on clean examples not fitted on. The
nine affine shifts on test images stand beside it; digits are development data. The last command
writes the tables in docs/shift_temperature.md from the kept rows.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import polars
import torch

from benchmarks.pages import ROOT, table, write_between
from benchmarks.promise import TURNS
from falconcal import ShiftTemperature, evaluate, load, load_dataset
from falconcal.shifts import affine_shifts

KEPT = ROOT / "results" / "promise" / "settings.jsonl"
SEEDS = (0, 1, 2)
CHANGES: dict[str, tuple[dict[str, Any], ...]] = {
    "clean share": tuple({"clean_share": share} for share in (0.5, 0.6, 0.7, 0.8, 0.9)),
    "stored examples": tuple({"stored": count} for count in (50, 100, 300, 1000, 2000)),
    "neighbours": tuple({"neighbours": k} for k in (1, 3, 10, 30)),
    "widest stage": tuple({"widest": width} for width in (64, 256, 1024)),
    "float16": tuple({"half_precision": half} for half in (False, True)),
}
FIGURES = ("left_out", "left_out_clean", "micro_ece", "macro_ece", "clean_ece", "turned")
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="output folder of the finished run")
    run = parser.parse_args().run
    if run is not None:
        torch.set_num_threads(1)
        measure(run)
    write_page(read())


def measure(run: Path) -> None:
    """Fit and test every setting that has no row yet."""
    done = {(row["seed"], json.dumps(row["change"])) for row in read()}
    for seed in SEEDS:
        model = load(run / "runs" / "default" / "falcon" / f"seed-{seed}" / "weights.safetensors")
        for change in (change for changes in CHANGES.values() for change in changes):
            if (seed, json.dumps(change)) not in done:
                keep({"seed": seed, "change": change, **figures(model.model, change)})


def figures(model: torch.nn.Module, change: dict[str, Any]) -> Row:
    """Return what a fit with one setting changed comes to."""
    data = load_dataset("digits")
    fitted = ShiftTemperature(**change).fit(
        model, data.train.batches(100), data.validation.batches(100)
    )
    assert fitted.fit_record is not None
    left_out = {one.family: one.ece_after for one in fitted.fit_record.left_out}
    home = left_out.pop("clean")
    rows = evaluate(fitted, data.test, list(affine_shifts("middle").values()))
    return {
        "left_out": statistics.fmean(left_out.values()),
        "left_out_clean": home,
        "micro_ece": mean(rows, metric="micro_ece"),
        "macro_ece": mean(rows, metric="macro_ece"),
        "clean_ece": mean(rows, metric="ece", shift="clean"),
        "turned": mean(rows.filter(polars.col("shift").is_in(TURNS)), metric="confidence", level=9),
    }


def mean(rows: polars.DataFrame, **chosen: Any) -> float:
    return statistics.fmean(rows.filter(**chosen)["value"])


def write_page(rows: list[Row]) -> None:
    """Put one table per setting into the page on shift temperature."""
    heads = ("left-out families", "clean, not fitted on", "micro ECE", "macro ECE", "clean ECE",
             "confidence at 90 degrees")  # fmt: skip
    parts = []
    for name, changes in CHANGES.items():
        lines = [
            (str(next(iter(change.values()))), *(cell(rows, change, one) for one in FIGURES))
            for change in changes
        ]
        parts.append(table((name, *heads), lines))
    text = "\n\n".join(parts)
    write_between("docs/shift_temperature.md", "settings", "shift_temperature_settings", text)


def cell(rows: list[Row], change: dict[str, Any], figure: str) -> str:
    values = [row[figure] for row in rows if row["change"] == change]
    return f"{statistics.fmean(values):.3f}"


def keep(row: Row) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with KEPT.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def read() -> list[Row]:
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


if __name__ == "__main__":
    main()
