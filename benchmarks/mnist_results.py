"""Keep the figures of the MNIST runs and write their pages in docs/results.

    python -m benchmarks.mnist_results --tuning runs/tune/mnist --keep main=runs/mnist \\
        --keep sampling=runs/mnist_sampling --keep ablation=runs/mnist_ablation \\
        --keep sensitivity=runs/mnist_sensitivity

Copies rows, comparisons, settings, records and figures, all small enough for the repository, into
``results/mnist``, and the figures that the pages show into ``docs/results/figures``. Without
arguments it only writes the pages again from the files that are kept.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import polars

from benchmarks import mnist_tables as tables
from benchmarks import mnist_trials as trials
from benchmarks.mnist_tables import Kept
from benchmarks.pages import PAGES, ROOT, render
from falconcal.data.subsets import sample_indices
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.io.trial_rows import best_of
from falconcal.report.charts.outlier_charts import confidence_of_classes
from falconcal.report.results import Results, load_results

RESULTS = ROOT / "results" / "mnist"
STUDY_PAGES = ("mnist", "mnist_ablation", "mnist_sensitivity", "mnist_tuning")
PARTS = ("main", "sampling", "ablation", "sensitivity")
FILES = ("rows.parquet", "comparisons.parquet", "study.json", "summary.json", "summary.md")
TRIAL_FILES = ("trials.jsonl", "best.toml", "history.svg")
FIGURES = (
    "ece-by-level", "accuracy-by-level", "micro-ece-by-shift", "confidence-of-outliers",
    "confidence-by-predicted-class", "recalibration-falcon", "recalibration-evidential",
    "sensitivity-falcon-calibration-weight", "sensitivity-falcon-entropy-weight",
)  # fmt: skip
# the folders whose figures the pages show, with the names of these
SHOWN = {
    "main": ("ece-by-level", "micro-ece-by-shift", "confidence-by-predicted-class"),
    "sensitivity": FIGURES[-2:],
}
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
    for name, text in pages().items():
        (PAGES / f"{name}.md").write_text(text)


def keep(run: Path, target: Path) -> None:
    """Copy the small files of an output folder."""
    copy(run, target, FILES)
    records = {
        "/".join(file.parts[-4:-1]): with_history(json.loads(file.read_text()), file.parent)
        for file in sorted(run.glob("runs/*/*/*/run.json"))
    }
    (target / "runs.json").write_text(json.dumps(records, indent=1) + "\n")
    keep_figures(run / "figures", target)
    results = load_results(run)
    if results.outliers:
        confidence_of_classes(results).write_csv(target / "classes.csv")
    if target.name == "main":
        few_rows(results).write_parquet(target / "few_rows.parquet")


def keep_figures(source: Path, target: Path) -> None:
    """Copy the figures of an output folder: those that a page shows to the pages."""
    (target / "figures").mkdir(exist_ok=True)
    for name in FIGURES:
        if (source / f"{name}.svg").exists():
            shown = name in SHOWN.get(target.name, ())
            kept = (
                PAGES / "figures" / f"mnist-{name}.svg"
                if shown
                else target / "figures" / f"{name}.svg"
            )
            shutil.copy(source / f"{name}.svg", kept)


def with_history(record: dict[str, Any], run: Path) -> dict[str, Any]:
    """Add the number of epochs and the validation figures of the epoch that is kept."""
    history = polars.read_parquet(run / "history.parquet")
    kept = history.filter(
        polars.col("term").str.starts_with("validation/"),
        polars.col("epoch") == polars.lit(record["kept_epoch"], polars.Int64),
    )
    said = {row["term"].removeprefix("validation/"): row["value"] for row in kept.to_dicts()}
    # an ensemble and a recalibrated model have the history of their base
    alone = "base" not in json.loads((run / "settings.json").read_text())["settings"]
    return {**record, "epochs": history["epoch"].max(), "validation": said if alone else None}


def few_rows(results: Results) -> polars.DataFrame:
    """Return the rows of every run on the test images that the sampling methods are measured on."""
    tables = []
    for run in results.runs:
        scores = polars.read_parquet(run.scores_file)
        shown = polars.col("shift").cast(polars.String).is_in(["clean", *results.tested_shifts])
        total = len(scores.filter(shift="clean"))
        few = scores.filter(shown, polars.col("example").is_in(sample_indices(total, FEW).tolist()))
        key = {"variant": run.key.variant, "method": run.key.method, "seed": run.key.seed}
        columns = [polars.lit(value).alias(name) for name, value in key.items()]
        tables.append(scores_to_rows(few).with_columns(columns))
    return polars.concat(tables)


def copy(source: Path, target: Path, names: list[str] | tuple[str, ...]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(source / name, target / name)


def pages() -> dict[str, str]:
    """Return the text of each page by name, from the files that are kept."""
    words = context()
    return {name: render(name, words) for name in STUDY_PAGES}


def context() -> dict[str, Any]:
    """Return every table and number that the pages show."""
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
