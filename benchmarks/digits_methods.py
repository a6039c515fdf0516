"""Run the study digits_methods, keep its figures, and write the page that shows them.

    python -m benchmarks.digits_methods runs/digits_methods

Uses one thread, and resumes when it is started again. ``--methods`` selects methods; ``--page``
only writes the page, from ``results/digits_methods``, which holds the rows of its table.
"""

import argparse
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars
import torch
from rich.console import Console

from benchmarks.choose_methods import GRIDS, TRIALS_FILE, chosen, for_study
from benchmarks.choose_settings import read
from benchmarks.pages import PAGES, ROOT, put_between
from falconcal.cli.progress import make_progress
from falconcal.io.atomic import write_text
from falconcal.studies import find_study
from falconcal.studies.runner import do_runs

PAGE, RESULTS = PAGES / "digits_methods.md", ROOT / "results" / "digits_methods"
FIGURES = ("accuracy", "clean_ece", "micro_ece", "macro_ece", "training", "prediction")
HEADING = ("accuracy", "clean ECE", "micro ECE", "macro ECE", "training, s", "prediction, s")
LESS = {"svi": 0.93, "mnf": 0.93}  # of the accuracy that is asked for
ENOUGH = 0.95
RECORDED = ("commit", "threads", "machine", "training_cpu_seconds", "evaluation_cpu_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="output folder of the study")
    parser.add_argument("--methods", nargs="*", help="of the study; all if not said")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="write the page alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.page:
        with make_progress(Console()) as progress:
            study = find_study("digits_methods", [f"seeds={arguments.seeds}"])
            failed = do_runs(study, arguments.run, progress, arguments.methods)
        assert not failed, failed
    if (arguments.run / "rows.parquet").exists():
        keep(arguments.run)
    PAGE.write_text(filled(PAGE.read_text()))


def keep(run: Path) -> None:
    """Copy the figures of the table into the repository."""
    rows = polars.read_parquet(run / "rows.parquet")
    clean = (polars.col("shift") == "clean") & polars.col("metric").is_in(["accuracy", "ece"])
    kept = rows.filter(clean | polars.col("metric").is_in(["micro_ece", "macro_ece"]))
    kept.drop("variant").write_parquet(RESULTS / "rows.parquet", compression="zstd")
    runs = {
        f"{file.parts[-3]}/{file.parts[-2]}": _record(file)
        for file in sorted(run.glob("runs/*/*/*/run.json"))
    }
    write_text(RESULTS / "runs.json", json.dumps(runs, indent=1) + "\n")


def _record(file: Path) -> dict[str, Any]:
    record = json.loads(file.read_text())
    return {name: record.get(name) for name in RECORDED}


def filled(page: str) -> str:
    """Return the page with the tables as the kept files have them."""
    found = figures()
    tables = {"table": table(found), "goals": goals(found), "trials": trial_table()}
    for name, text in tables.items():
        page = put_between(page, name, "digits_methods", text)
    return page


def figures() -> dict[str, dict[str, list[float]]]:
    """Return the figures of each method, one number per seed."""
    rows = polars.read_parquet(RESULTS / "rows.parquet")
    runs = json.loads((RESULTS / "runs.json").read_text())
    names = [name for name in find_study("digits_methods").methods if name in set(rows["method"])]
    return {name: _figures(rows.filter(polars.col("method") == name), runs, name) for name in names}


def _figures(
    rows: polars.DataFrame, runs: dict[str, dict[str, float]], name: str
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {figure: [] for figure in FIGURES}
    for (_seed,), part in sorted(rows.partition_by("seed", as_dict=True).items()):
        clean = part.filter(polars.col("shift") == "clean")
        found["accuracy"] += clean.filter(metric="accuracy")["value"].to_list()
        found["clean_ece"] += clean.filter(metric="ece")["value"].to_list()
        for figure in ("micro_ece", "macro_ece"):
            found[figure].append(float(part.filter(metric=figure)["value"].mean()))  # type: ignore[arg-type]
        record = runs[f"{name}/seed-{_seed}"]
        found["training"].append(record["training_cpu_seconds"])
        found["prediction"].append(record["evaluation_cpu_seconds"])
    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """Return the table: means over seeds, ± the deviation between them."""
    lines = [f"| method | seeds | {' | '.join(HEADING)} |"]
    lines.append(f"| --- | {' | '.join(['---:'] * (len(HEADING) + 1))} |")
    for name, values in found.items():
        digits = [1 if figure in ("training", "prediction") else 3 for figure in FIGURES]
        pairs = zip(FIGURES, digits, strict=True)
        cells = [_cell(values[figure], places) for figure, places in pairs]
        lines.append(f"| {name} | {len(values['accuracy'])} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Iterable[float], digits: int) -> str:
    numbers = list(values)
    mean = f"{statistics.fmean(numbers):.{digits}f}"
    return mean if len(numbers) < 2 else f"{mean} ± {statistics.stdev(numbers):.{digits}f}"


def goals(found: dict[str, dict[str, list[float]]]) -> str:
    """Say which methods reach the accuracy that is asked of them, and which have not been run."""
    means = {name: statistics.fmean(values["accuracy"]) for name, values in found.items()}
    asked = {name: LESS.get(name, ENOUGH) for name in means}
    low = [f"{name} ({means[name]:.4f})" for name in means if means[name] < asked[name]]
    missing = [name for name in find_study("digits_methods").methods if name not in found]
    lines = [
        f"The goal is an accuracy of {ENOUGH}, for SVI and MNF {LESS['svi']}. Below it: "
        f"{', '.join(low) or 'none'}."
    ]
    lines += [f"Not run yet: {', '.join(missing)}."] if missing else []
    return "\n".join(lines)


def trial_table() -> str:
    """Return the trials: one row per method, with the settings that were chosen."""
    rows = read(TRIALS_FILE)
    lines = ["| method | trials | criterion | chosen |", "| --- | ---: | ---: | --- |"]
    for name in GRIDS:
        mine = [row for row in rows if row["method"] == name]
        if not mine:
            continue
        settings = chosen(rows, name)
        (best,) = (row for row in mine if row["settings"] == settings)
        shown = ", ".join(f"{key} {value}" for key, value in for_study(settings).items())
        lines.append(f"| {name} | {len(mine)} | {best['criterion']:.3f} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
