"""Keep the figures of the MNIST runs and write RESULTS.md from them.

    python -m benchmarks.mnist_results --tuning runs/tune/mnist --keep main=runs/mnist \\
        --keep sampling=runs/mnist_sampling --keep ablation=runs/mnist_ablation \\
        --keep sensitivity=runs/mnist_sensitivity

Copies rows, comparisons, settings, records and figures, all small enough for the repository, into
``results/mnist``; without arguments it writes RESULTS.md anew from what is there.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import polars
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks import mnist_tables as tables
from benchmarks import mnist_trials as trials
from benchmarks.mnist_tables import Kept
from benchmarks.pages import ROOT
from falconcal.data.few import places_of_few
from falconcal.evaluation import rows_of
from falconcal.report.outliers import confidence_of_classes
from falconcal.report.results import Results, load_results
from falconcal.tuning.choice import best_of

RESULTS = ROOT / "results" / "mnist"
PARTS = ("main", "sampling", "ablation", "sensitivity")
FILES = ("rows.parquet", "comparisons.parquet", "study.json", "summary.json", "summary.md")
TRIAL_FILES = ("trials.jsonl", "best.toml", "history.svg")
FIGURES = (
    "ece-by-level", "accuracy-by-level", "micro-ece-by-shift", "confidence-of-outliers",
    "confidence-by-predicted-class", "recalibration-falcon", "recalibration-evidential",
    "sensitivity-falcon-calibration-weight", "sensitivity-falcon-entropy-weight",
)  # fmt: skip
FEW = 2000  # test images of the sampling methods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="append", default=[], help=f"one of {PARTS} = its folder")
    parser.add_argument("--tuning", type=Path, help="output folder of falconcal tune")
    arguments = parser.parse_args()
    for pair in arguments.keep:
        name, _, folder = pair.partition("=")
        assert name in PARTS, f"expected one of {PARTS}, got {name}"
        keep(Path(folder), RESULTS / name)
    if arguments.tuning is not None:
        copy(arguments.tuning, RESULTS / "tuning", TRIAL_FILES)
    (ROOT / "RESULTS.md").write_text(page())


def keep(run: Path, target: Path) -> None:
    """Copy what is small of an output folder."""
    copy(run, target, FILES)
    records = {
        "/".join(file.parts[-4:-1]): with_history(json.loads(file.read_text()), file.parent)
        for file in sorted(run.glob("runs/*/*/*/run.json"))
    }
    (target / "runs.json").write_text(json.dumps(records, indent=1) + "\n")
    found = [f"{name}.svg" for name in FIGURES if (run / "figures" / f"{name}.svg").exists()]
    copy(run / "figures", target / "figures", found)
    results = load_results(run)
    if results.outliers:
        confidence_of_classes(results).write_csv(target / "classes.csv")
    if target.name == "main":
        few_rows(results).write_parquet(target / "few_rows.parquet")


def with_history(record: dict[str, Any], run: Path) -> dict[str, Any]:
    """Add how many epochs a run trained, and what validation data said of the one that is kept."""
    history = polars.read_parquet(run / "history.parquet")
    kept = history.filter(
        polars.col("term").str.starts_with("validation/"),
        polars.col("epoch") == polars.lit(record["kept_epoch"], polars.Int64),
    )
    said = {row["term"].removeprefix("validation/"): row["value"] for row in kept.to_dicts()}
    # what stands on others has their history: members of an ensemble, a recalibrated model
    alone = "base" not in json.loads((run / "settings.json").read_text())["settings"]
    return {**record, "epochs": history["epoch"].max(), "validation": said if alone else None}


def few_rows(results: Results) -> polars.DataFrame:
    """Return the rows of every run on the test images that the sampling methods are measured on."""
    tables = []
    for run in results.runs:
        scores = polars.read_parquet(run.scores_file)
        shown = polars.col("shift").cast(polars.String).is_in(["clean", *results.tested_shifts])
        total = len(scores.filter(shift="clean"))
        few = scores.filter(shown, polars.col("example").is_in(places_of_few(total, FEW).tolist()))
        key = {"variant": run.key.variant, "method": run.key.method, "seed": run.key.seed}
        columns = [polars.lit(value).alias(name) for name, value in key.items()]
        tables.append(rows_of(few).with_columns(columns))
    return polars.concat(tables)


def copy(source: Path, target: Path, names: list[str] | tuple[str, ...]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(source / name, target / name)


def page() -> str:
    """Return RESULTS.md as what is kept makes it."""
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), undefined=StrictUndefined
    )
    return pages.get_template("RESULTS.md.jinja").render(context()).strip() + "\n"


def context() -> dict[str, Any]:
    """Return every table and number that RESULTS.md shows."""
    folders = {name: Kept(RESULTS / name) for name in PARTS}
    done = {name for kept in folders.values() if kept.there for name in kept.methods}
    main, tuning = folders["main"], RESULTS / "tuning"
    few = folders["sampling"]
    record, best = next(iter(main.runs.values())), trials.best_row(tuning)
    return {
        "study": main.study,
        "record": record,
        "hours": tables.core_hours(folders.values(), tuning),
        "headline": tables.headline(main, few),
        "best": best,
        "missing": [name for name in main.study["methods"] if name not in done],
        "facts": tables.facts(main, tuning),
        "goals": tables.goals(main, few, best),
        "full": measured(main),
        "few": measured(few) if few.there else None,
        "few_images": FEW,
        "apart_by_level": tables.confidence_and_accuracy(
            main, main.study["selection_shifts"], (tables.PLAIN_METHOD, "falcon", best)
        ),
        "recalibrated": tables.by_level(main, "ece", ["yzoom"], tables.RECALIBRATED),
        "ablation": tables.variants(folders["ablation"]),
        "sensitivity": tables.variants(folders["sensitivity"]),
        "movement": {
            name: tables.movement(folders["sensitivity"], name)
            for name in ("calibration_weight", "entropy_weight")
        },
        "trials": trials.trials(tuning),
        "effort": trials.effort(tuning),
        "whole_trials": {name: trials.whole_trials(tuning, name) for name in trials.WHOLE},
        "chosen_whole": best_of(trials.read_whole(tuning))[tables.BEYOND],
        "lowest_whole": trials.lowest_whole(tuning),
        "families": trials.families(tuning),
        "correlations": trials.correlations(tuning),
    }


def measured(kept: Kept) -> dict[str, str]:
    """Return the tables that every folder of runs has."""
    return {
        "differences": tables.differences(kept),
        "tests": tables.tests(kept),
        "shifts": tables.by_shift(kept, kept.study["shifts"]),
        "apart": tables.by_shift(kept, kept.study["selection_shifts"]),
        "distributions": tables.section(kept, "In domain and truly out of distribution"),
        "outliers": tables.section(kept, "Outliers"),
        "classes": tables.classes(kept),
        "nll": tables.by_level(kept, "nll", kept.study["shifts"], kept.methods),
    }


if __name__ == "__main__":
    main()
