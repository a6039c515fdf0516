"""A study on disk with several seeds, shifts and a sharpness per method."""

import json
from pathlib import Path

import polars
import torch
from torch import nn

from falconcal.data import Bounds, Examples
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.evaluation.under_shift import score_under_shift
from falconcal.shifts import Shift

SEEDS, CLASSES, EXAMPLES = (0, 1), ("a", "b", "c"), 90


# "lost" makes every example look like the rarest class, "offset" leaves some truth
LOST = torch.tensor([0.7, -0.7, -0.7])


SHIFTS = (
    Shift("offset", (0.0, *(0.1 * level for level in range(1, 8))), lambda x, s, _: x + s),
    Shift("lost", (0.0, 1.0), lambda x, s, _: LOST + 0.1 * x if s else x),
)


SHARPNESS = {"dropout": 6.0, "falcon": 1.5, "mixup": 5.9}


def examples() -> Examples:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(EXAMPLES, 3, generator=generator)
    noisy = inputs + 0.8 * torch.randn(EXAMPLES, 3, generator=generator)
    labels = torch.where(torch.arange(EXAMPLES) < 10, 0, noisy.argmax(1).clamp(min=1))
    return Examples(inputs, labels, Bounds(-9, 9), CLASSES)


def network(method: str, seed: int) -> nn.Module:
    layer = nn.Linear(3, 3)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        noise = 0.3 * torch.randn(3, 3, generator=generator)
        layer.weight.copy_(SHARPNESS[method] * (torch.eye(3) + noise))
        layer.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    return layer


def make_study(directory: Path, methods: tuple[str, ...]) -> Path:
    """Write what a study leaves behind, its scores and rows by the product's own evaluation."""
    directory.mkdir()
    content = {
        "shifts": [shift.name for shift in SHIFTS],
        "methods": {name: {} for name in methods},
    }
    (directory / "study.json").write_text(json.dumps({"name": "small", **content}))
    for method in methods:
        for seed in SEEDS:
            write_run(
                directory,
                method,
                seed,
                score_under_shift(network(method, seed), examples(), SHIFTS),
            )
    write_rows(directory)
    return directory


def write_run(directory: Path, method: str, seed: int, scores: polars.DataFrame) -> None:
    folder = directory / "runs" / "default" / method / f"seed-{seed}"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text("{}")
    (folder / "run.json").write_text(json.dumps({"training_seconds": 1.0}))
    history = {"epoch": [1], "term": ["loss"], "value": [1.0]}
    polars.DataFrame(history).write_parquet(folder / "history.parquet")
    scores.write_parquet(folder / "scores.parquet")


def write_rows(directory: Path) -> None:
    parts = []
    for file in sorted((directory / "runs" / "default").glob("*/*/scores.parquet")):
        method, seed = file.parts[-3], int(file.parts[-2].removeprefix("seed-"))
        key = {"study": "small", "variant": "default", "method": method, "seed": seed}
        rows = scores_to_rows(polars.read_parquet(file))
        parts.append(
            rows.with_columns(polars.lit(value).alias(name) for name, value in key.items())
        )
    polars.concat(parts).write_parquet(directory / "rows.parquet")
