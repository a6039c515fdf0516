"""Keep the figures of a finished run of the study digits and write the pages that show them.

    falconcal run digits --seeds 3 --out runs/digits-3
    python -m benchmarks.digits_results runs/digits-3

Copies the rows, the settings and each run's record into ``results/digits``, then writes
``docs/results/digits.md`` from the files there, among them all trials of the choice of settings
(``trials.jsonl``).
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import polars
import scipy.stats

from benchmarks.pages import PAGES, ROOT, render

RESULTS = ROOT / "results" / "digits"
FIGURES = ("ece-by-level", "micro-ece-by-shift")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="output folder of the finished run")
    run = parser.parse_args().run
    if run is not None:
        keep(run)
    (PAGES / "digits.md").write_text(render("digits", context()))


def context() -> dict[str, Any]:
    """Return every table and figure that the pages show."""
    rows = polars.read_parquet(RESULTS / "rows.parquet")
    study = json.loads((RESULTS / "study.json").read_text())
    summary = (RESULTS / "summary.md").read_text()
    trials = [json.loads(line) for line in (RESULTS / "trials.jsonl").read_text().splitlines()]
    return {
        "study": study,
        "record": json.loads(min(RESULTS.glob("runs/*/*/*/run.json")).read_text()),
        "headline": summary_section(summary),
        "verdict": verdict(figures(rows, study)),
        "shifts": summary[summary.index("## Micro-averaged") :].strip(),
        "trials": {method: trial_table(trials, method) for method in ("dropout", "falcon")},
        "correlations": correlations(trials),
        "chosen": json.dumps(study["methods"], indent=2),
        "earlier": len((RESULTS / "earlier_trials.jsonl").read_text().splitlines()),
        "gaps": gap_table(rows, study),
        "found": findings(trials, figures(rows, study)),
    }


def keep(run: Path) -> None:
    """Copy the files that are small enough for the repository."""
    for name in ("rows.parquet", "study.json", "summary.md"):
        shutil.copy(run / name, RESULTS / name)
    for record in sorted(run.glob("runs/*/*/*/run.json")):
        target = RESULTS / record.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(record, target)
    for name in FIGURES:
        shutil.copy(run / "figures" / f"{name}.svg", PAGES / "figures" / f"digits-{name}.svg")


def figures(rows: polars.DataFrame, study: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the figures of the goals for each method, means over seeds."""
    tested = rows.filter(polars.col("shift").is_in(study["shifts"]))
    clean = rows.filter(polars.col("shift") == "clean")
    picked = {
        "accuracy": clean.filter(metric="accuracy"),
        "clean_ece": clean.filter(metric="ece"),
        "micro": tested.filter(metric="micro_ece"),
        "macro": tested.filter(metric="macro_ece"),
    }
    return {
        method: {name: _mean(part.filter(method=method)) for name, part in picked.items()}
        for method in ("dropout", "falcon")
    }


def verdict(table: dict[str, dict[str, float]]) -> str:
    """Return one row per goal: met or missed."""
    plain, falcon = table["dropout"], table["falcon"]
    ratio = falcon["micro"] / plain["micro"]
    goals = [
        ("mean micro ECE at most half of dropout's", ratio <= 0.5, f"{ratio:.2f} of it"),
        (
            "mean macro ECE below dropout's",
            falcon["macro"] < plain["macro"],
            f"{falcon['macro']:.3f} against {plain['macro']:.3f}",
        ),
        (
            "accuracy within 0.01 of dropout's",
            falcon["accuracy"] >= plain["accuracy"] - 0.01,
            f"{falcon['accuracy']:.3f} against {plain['accuracy']:.3f}",
        ),
        ("clean ECE at most 0.06", falcon["clean_ece"] <= 0.06, f"{falcon['clean_ece']:.3f}"),
    ]
    lines = ["| goal for FALCON | | measured |", "| --- | --- | --- |"]
    lines += [f"| {goal} | {'met' if met else 'missed'} | {value} |" for goal, met, value in goals]
    return "\n".join(lines)


def trial_table(trials: list[dict[str, Any]], method: str) -> str:
    groups = grouped(trials, method)
    varied = _varied([json.loads(key) for key in groups])
    heading = [*varied, "seeds", "accuracy", *FAMILIES, "criterion", "test: micro", "test: macro"]
    lines = [f"| {' | '.join(heading)} |", f"| {' | '.join(['---:'] * len(heading))} |"]
    for key, rows in sorted(groups.items(), key=lambda item: _average(item[1], "criterion")):
        settings = json.loads(key)
        cells = [_shown(settings.get(name)) for name in varied] + [str(len(rows))]
        cells += [f"{_average(rows, 'accuracy'):.3f}{_flag(rows)}"]
        cells += [f"{_average(rows, 'families', name):.3f}" for name in FAMILIES]
        cells += [f"**{_average(rows, 'criterion'):.3f}**"]
        cells += [f"{_average(rows, 'test', name):.3f}" for name in ("micro_ece", "macro_ece")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


FAMILIES = ("clean", "fgsm", "gaussian_noise", "gaussian_blur", "contrast")


def correlations(trials: list[dict[str, Any]]) -> str:
    """Return how well the criterion ranks the nine shifts: Spearman's coefficients."""
    lines = [
        "| trials | number | with micro ECE | with macro ECE |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in ("dropout", "falcon", "both"):
        chosen = [row for row in trials if name in ("both", row["method"])]
        criterion = [row["criterion"] for row in chosen]
        micro, macro = (
            scipy.stats.spearmanr(criterion, [row["test"][figure] for row in chosen]).statistic
            for figure in ("micro_ece", "macro_ece")
        )
        lines.append(f"| {name} | {len(chosen)} | {micro:+.2f} | {macro:+.2f} |")
    return "\n".join(lines)


def gap_table(rows: polars.DataFrame, study: dict[str, Any]) -> str:
    """Return confidence less accuracy, means over levels above 0 and seeds."""
    lines = ["| shift | dropout | falcon |", "| --- | ---: | ---: |"]
    groups = {"mean of the nine": study["shifts"]}
    groups |= {name: [name] for name in study["selection_shifts"]}
    for name, shifts in groups.items():
        shifted = rows.filter(polars.col("shift").is_in(shifts), polars.col("level") > 0)
        cells = [f"{_gap(shifted.filter(method=method)):+.3f}" for method in ("dropout", "falcon")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _gap(rows: polars.DataFrame) -> float:
    return _mean(rows.filter(metric="confidence")) - _mean(rows.filter(metric="accuracy"))


def findings(trials: list[dict[str, Any]], measured: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the numbers behind the reading of the trials."""
    falcon = list(grouped(trials, "falcon").values())
    paper = [rows for rows in falcon if "directions" not in rows[0]["settings"]]
    mixed = [rows for rows in falcon if "directions" in rows[0]["settings"]]
    lowest = min(paper, key=lambda rows: _average(rows, "test", "micro_ece"))
    return {
        "dropout": _best(list(grouped(trials, "dropout").values())),
        "paper": _best(paper),
        "mixed": _best(mixed),
        "lowest_micro": _average(lowest, "test", "micro_ece"),
        "lowest_clean": _average(lowest, "test", "ece"),
        "settings": len(paper),
        "reaching": sum(_reaches(rows, measured["dropout"]) for rows in paper),
        "trials": {name: len(grouped(trials, name)) for name in ("dropout", "falcon")},
    }


def _best(groups: list[list[dict[str, Any]]]) -> float:
    """Return the lowest mean criterion of settings that were tried with three seeds."""
    enough = [rows for rows in groups if len(rows) >= 3 and not _flag(rows)]
    return min(_average(rows, "criterion") for rows in enough)


def _reaches(rows: list[dict[str, Any]], dropout: dict[str, float]) -> bool:
    return (
        _average(rows, "test", "micro_ece") <= dropout["micro"] / 2
        and _average(rows, "test", "macro_ece") < dropout["macro"]
        and _average(rows, "test", "accuracy") >= dropout["accuracy"] - 0.01
        and _average(rows, "test", "ece") <= 0.06
    )


def grouped(trials: list[dict[str, Any]], method: str) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in trials:
        if row["method"] == method:
            groups.setdefault(json.dumps(row["settings"]), []).append(row)
    return groups


def summary_section(summary: str) -> str:
    """Return the table and the note on seeds out of summary.md."""
    return "\n\n".join(summary.split("\n\n")[1:3])


def _mean(rows: polars.DataFrame) -> float:
    return float(rows["value"].mean())  # type: ignore[arg-type]


def _average(rows: list[dict[str, Any]], *path: str) -> float:
    values = []
    for row in rows:
        value: Any = row
        for name in path:
            value = value[name]
        values.append(float(value))
    return sum(values) / len(values)


def _flag(rows: list[dict[str, Any]]) -> str:
    return "*" if _average(rows, "accuracy") < _average(rows, "required_accuracy") else ""


def _varied(points: list[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for point in points for name in point)
    return [name for name in names if len({str(point.get(name)) for point in points}) > 1]


def _shown(value: Any) -> str:
    """Return a setting for a cell; directions are the paper's or a mix."""
    if isinstance(value, list):
        return "mix"
    return "paper" if value is None else str(value)


if __name__ == "__main__":
    main()
