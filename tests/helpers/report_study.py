"""A small study on disk whose figures can be checked by hand."""

import json
from pathlib import Path
from typing import Any

import polars
import torch
from PIL import Image

from falconcal.metrics.predictions import Scores

TESTED, CHOSEN_ON = ("rotation", "noise", "zoom"), ("contrast",)


LAST_LEVEL = {"rotation": 2, "noise": 1, "zoom": 1, "contrast": 1}


SEEDS = (0, 1)


EXAMPLES = 40


# micro ECE of seed 0; seed 1 has 0.02 more; macro ECE is twice the micro one
MICRO = {
    "dropout": {"rotation": 0.1, "noise": 0.2, "zoom": 0.3, "contrast": 0.9},
    "falcon": {"rotation": 0.01, "noise": 0.02, "zoom": 0.06, "contrast": 0.8},
}


def make_outliers(study: Path, name: str, shifts: list[str]) -> None:
    """Turn a shift of a made study into a set of outliers, beside the shifts that stay."""
    content = json.loads((study / "study.json").read_text())
    content |= {"shifts": shifts, "outliers": [name]}
    (study / "study.json").write_text(json.dumps(content))
    for file in study.glob("runs/*/*/*/scores.parquet"):
        unknown = polars.when(polars.col("shift").cast(polars.String) == name).then(-1)
        scores = polars.read_parquet(file)
        scores.with_columns(label=unknown.otherwise(polars.col("label"))).write_parquet(file)


def make_study(
    directory: Path,
    seeds: tuple[int, ...] = SEEDS,
    chosen_on: tuple[str, ...] = CHOSEN_ON,
    title: str = "Digits",
) -> Path:
    """Write what a study of two methods leaves behind."""
    directory.mkdir()
    study = {
        "name": "digits",
        "title": title,
        "dataset": "digits",
        "shifts": list(TESTED),
        "selection_shifts": list(chosen_on),
        "methods": {method: {"epochs": 2, "schedule": {"warm": [1, 2]}} for method in MICRO},
    }
    (directory / "study.json").write_text(json.dumps(study))
    runs = [(method, seed) for method in MICRO for seed in seeds]
    rows = [row for run in runs for row in rows_of_run(*run, TESTED + chosen_on)]
    polars.DataFrame(rows, infer_schema_length=None).write_parquet(directory / "rows.parquet")
    for run in runs:
        write_run(directory, *run, TESTED + chosen_on)
    (directory / "examples").mkdir()
    Image.new("L", (6, 2)).save(directory / "examples" / "rotation.png")
    return directory


def rows_of_run(method: str, seed: int, shifts: tuple[str, ...]) -> list[dict[str, Any]]:
    run = {"study": "digits", "variant": "default", "method": method, "seed": seed}
    clean = {"accuracy": 0.9 + 0.02 * seed, "ece": 0.04, "nll": 0.3, "brier": 0.2}
    clean |= {"entropy": 0.5, "confidence": 0.86}
    rows = [_row("clean", 0, metric, value) for metric, value in clean.items()]
    for shift in shifts:
        for level in range(LAST_LEVEL[shift] + 1):
            rows += [
                _row(shift, level, metric, value / (1 + level)) for metric, value in clean.items()
            ]
        micro = MICRO[method][shift] + 0.02 * seed
        rows += [_row(shift, None, "micro_ece", micro), _row(shift, None, "macro_ece", 2 * micro)]
    return [run | row for row in rows]


def _row(shift: str, level: int | None, metric: str, value: float) -> dict[str, Any]:
    return {"shift": shift, "level": level, "metric": metric, "value": value, "examples": EXAMPLES}


def write_run(directory: Path, method: str, seed: int, shifts: tuple[str, ...]) -> None:
    folder = directory / "runs" / "default" / method / f"seed-{seed}"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(
        json.dumps({"seed": seed, "settings": {"epochs": 2, "bounds": None}})
    )
    record = {"training_seconds": 10.0 + 2 * seed, "evaluation_seconds": 1.0, "commit": None}
    (folder / "run.json").write_text(json.dumps(record))
    history = {"epoch": [1, 2], "term": ["clean/cross_entropy"] * 2, "value": [2.0, 1.0]}
    polars.DataFrame(history).write_parquet(folder / "history.parquet")
    make_scores(seed, shifts).write_parquet(folder / "scores.parquet")


def make_scores(seed: int, shifts: tuple[str, ...]) -> polars.DataFrame:
    """Return scores whose confidences lie on the edges of bins as well as between them."""
    generator = torch.Generator().manual_seed(seed)
    rungs = [("clean", 0)]
    rungs += [(shift, level) for shift in shifts for level in range(1, LAST_LEVEL[shift] + 1)]
    parts = []
    for shift, level in rungs:
        confidence = torch.rand(EXAMPLES, generator=generator, dtype=torch.float64)
        confidence[:11] = torch.linspace(0, 1, 11, dtype=torch.float32).double()
        correct = torch.rand(EXAMPLES, generator=generator) < 0.5
        part = polars.DataFrame({"confidence": confidence.numpy(), "correct": correct.numpy()})
        parts.append(
            part.with_columns(
                polars.lit(shift).cast(polars.Categorical).alias("shift"),
                polars.lit(level, polars.Int16).alias("level"),
                polars.int_range(polars.len(), dtype=polars.Int64).alias("example"),
                polars.lit(1, polars.Int32).alias("label"),
                polars.col("correct").cast(polars.Int32).alias("prediction"),
                *(polars.lit(0.5).alias(name) for name in ("nll", "entropy", "brier")),
            )
        )
    return polars.concat(parts)


def _scores(table: polars.DataFrame) -> Scores:
    confidence = torch.from_numpy(table["confidence"].to_numpy().copy())
    correct = torch.from_numpy(table["correct"].to_numpy().copy())
    label = torch.ones(len(table), dtype=torch.long)
    rest = dict.fromkeys(("confidence", "nll", "entropy", "brier"), confidence)
    return Scores(label=label, prediction=label, correct=correct, **rest)
