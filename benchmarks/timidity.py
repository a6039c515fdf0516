"""Whether anything cures FALCON's timidity by itself, on digits and without shift temperature.

    python -m benchmarks.timidity results/timidity/rows.jsonl
    python -m benchmarks.timidity

FALCON with a weight of the entropy term that is felt (5) makes a network less sure than right at
home and under mild shifts. Four cures are tried, three seeds each: random noise beside FGSM at the
same epsilons, bins over more examples (batches of 400 instead of 100), a calibration step that
sees both, and the largest entropy weight whose clean validation ECE is at most plain's plus 0.02,
chosen per seed. Digits are development data. Keeps one row per variant and seed, resumes, and
writes ``docs/results/timidity.md``.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars
import torch
from torch import nn

from benchmarks.pages import PAGES, ROOT, render, table
from benchmarks.promise import AFFINE, CORRUPTIONS
from falconcal import Falcon, L2Dropout, evaluate, load_dataset, make_model, predict
from falconcal.data import Dataset
from falconcal.metrics import expected_calibration_error
from falconcal.shifts import affine_shifts

KEPT = ROOT / "results" / "timidity" / "rows.jsonl"
SEEDS = (0, 1, 2)
SLACK = 0.02  # of the clean validation ECE over plain's
WEIGHTS = (0.1, 0.5, 1.0, 2.0, 5.0, 15.0)
FALCON = Falcon(epochs=30, learning_rate=1e-3, entropy_weight=5.0)
BOTH = ("adversarial", "random_sign")
FIGURES = ("accuracy", "clean_ece", "clean_gap", "micro_ece", "macro_ece", "corruptions")
Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A way to train: a method and the size of its batches; several methods to choose from."""

    words: str
    methods: tuple[Any, ...]
    batch_size: int = 100


VARIANTS = {
    "plain": Variant("plain training", (L2Dropout(epochs=30, learning_rate=5e-4),)),
    "falcon": Variant("FALCON, entropy weight 5", (FALCON,)),
    "noise": Variant("random noise beside FGSM", (replace(FALCON, directions=BOTH),)),
    "bins": Variant("batches of 400", (FALCON,), 400),
    "noise_bins": Variant("both of these", (replace(FALCON, directions=BOTH),), 400),
    "adapted": Variant(
        "the largest entropy weight that keeps the clean ECE",
        tuple(replace(FALCON, entropy_weight=weight) for weight in reversed(WEIGHTS)),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="where the rows are kept")
    file = parser.parse_args().file
    if file is not None:
        torch.set_num_threads(1)
        measure(file)
    (PAGES / "timidity.md").write_text(page())


def measure(file: Path) -> None:
    """Train and test every variant with every seed that has no row yet."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for name in VARIANTS:
            known = {(row["variant"], row["seed"]): row for row in read(file)}
            if (name, seed) not in known:
                limit = clean_limit(known.get(("plain", seed)))
                row = {"variant": name, "seed": seed, **trained_row(VARIANTS[name], seed, limit)}
                with file.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
                print(row, flush=True)


def clean_limit(plain: Row | None) -> float:
    """Return the highest clean validation ECE that is allowed; none before plain is trained."""
    return 1.0 if plain is None else plain["validation_ece"] + SLACK


def trained_row(variant: Variant, seed: int, limit: float) -> Row:
    """Return how the first method within the limit tests, or the last where none is."""
    data = load_dataset("digits")
    for found in trained(variant, seed, data):
        if found[-1] <= limit:
            break
    model, method, error = found
    weight = getattr(method, "entropy_weight", 0.0)
    return {"entropy_weight": weight, "validation_ece": error, **tested(model, data)}


def trained(variant: Variant, seed: int, data: Dataset) -> Iterator[tuple[nn.Module, Any, float]]:
    """Yield each method's model, and its ECE on clean validation data."""
    for method in variant.methods:
        batches = data.train.batches(variant.batch_size, shuffle=True, seed=seed)
        network = make_model("lenet", data, seed=seed)
        model = replace(method, seed=seed).fit(network, batches, data.validation.batches(500))
        yield model, method, expected_calibration_error(predict(model, data.validation))


def tested(model: nn.Module, data: Dataset) -> Row:
    """Return the figures on test images: clean, nine affine shifts and the 19 corruptions."""
    rows = evaluate(model, data.test, [*affine_shifts("middle").values(), *CORRUPTIONS])
    clean = rows.filter(polars.col("shift") == "clean")
    home = dict(clean.select("metric", "value").iter_rows())
    affine = rows.filter(polars.col("shift").is_in(AFFINE))
    away = rows.filter(
        polars.col("shift").str.starts_with("corrupt_")
        & (polars.col("level") > 0)
        & (polars.col("metric") == "ece")
    )
    return {
        "accuracy": home["accuracy"],
        "clean_ece": home["ece"],
        "clean_gap": home["signed_gap"],
        **{name: affine.filter(metric=name)["value"].mean() for name in ("micro_ece", "macro_ece")},
        "corruptions": away["value"].mean(),
    }


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def page() -> str:
    rows = read(KEPT)
    heads = ("", "seeds", "entropy weight", "accuracy", "clean ECE", "confidence less accuracy",
             "micro ECE", "macro ECE", "19 corruptions")  # fmt: skip
    lines = [
        (variant.words, *cells([row for row in rows if row["variant"] == name]))
        for name, variant in VARIANTS.items()
    ]
    return render("timidity", {"table": table(heads, lines)})


def cells(rows: list[Row]) -> list[str]:
    """Return means over seeds, and the standard deviation between them."""
    weights = sorted({row["entropy_weight"] for row in rows})
    return [
        str(len(rows)),
        ", ".join(f"{weight:g}" for weight in weights),
        *(with_spread([row[figure] for row in rows]) for figure in FIGURES),
    ]


def with_spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


if __name__ == "__main__":
    main()
