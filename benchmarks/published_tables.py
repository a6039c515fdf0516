"""The paper's other tables, measured here: CIFAR-10, 20 Newsgroups, sequential MNIST.

    python -m benchmarks.published_tables lstm runs/paper/lstm runs/paper/lstm-one-seed
    python -m benchmarks.published_tables

The first keeps what the page needs of the output folders of ``falconcal run`` in
``results/paper/NAME``, the first folder's rows where two have the same, and writes
``docs/results/paper_NAME.md``; the second writes the pages of all tables that are kept. Intervals
are over test examples and seeds. What was to be tested stands in ``docs/results/protocol.md``.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars

from benchmarks.pages import PAGES, ROOT, render, table
from benchmarks.promise import AFFINE
from benchmarks.promise_networks import (
    HEADLINE,
    PLAIN,
    Goal,
    Reader,
    by_family,
    clean,
    difference_table,
    examples,
    leading_cells,
    methods,
    over,
    readers,
    scored_intervals,
    settings_table_of,
)
from falconcal.report.results import Results, load_results
from falconcal.report.tables.paper_values import published

KEPT = ROOT / "results" / "paper"
METRICS = ("accuracy", "confidence", "ece", "micro_ece", "macro_ece", "entropy")
COLUMNS = ["method", "seed", "shift", "level", "metric", "value", "examples"]
HALF = "bf16-mixed"
FITTED_AFTER = ("temperature", "shift_temperature")  # rows that recalibrate are no baselines
Rows = polars.DataFrame


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: where its figures are, and the goal that was stated for it."""

    title: str
    study: str
    paper: str  # in published.json
    goal: float  # mean micro ECE of the headline row
    shifts: tuple[str, ...] = tuple(AFFINE)


TABLES = {
    "cifar10": PaperTable("CIFAR-10", "cifar10_small", "cifar10", 0.127),
    "newsgroups": PaperTable(
        "20 Newsgroups", "newsgroups_small", "newsgroups", 0.158,
        ("word_swap", "word_swap_anywhere"),
    ),
    "gru": PaperTable(
        "Sequential MNIST, GRU", "sequential_mnist_gru_small", "sequential_mnist_gru", 0.108
    ),
    "lstm": PaperTable(
        "Sequential MNIST, LSTM", "sequential_mnist_lstm_small", "sequential_mnist_lstm", 0.118
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=TABLES)
    parser.add_argument("runs", type=Path, nargs="*", help="output folders of measured runs")
    arguments = parser.parse_args()
    if arguments.runs:
        keep(arguments.name, [load_results(folder) for folder in arguments.runs])
    for name in kept_tables():
        (PAGES / f"paper_{name}.md").write_text(page(name))


def kept_tables() -> list[str]:
    return [name for name in TABLES if (KEPT / name / "rows.parquet").exists()]


def keep(name: str, parts: Sequence[Results]) -> None:
    """Keep rows, intervals and settings of one table's output folders."""
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = polars.concat([rows_of(results) for results in parts])
    once = rows.unique([*COLUMNS[:-2]], keep="first", maintain_order=True)
    once.write_parquet(folder / "rows.parquet", compression="zstd")
    evidence = {"intervals": intervals(parts, TABLES[name].shifts), "examples": examples(parts[0])}
    (folder / "evidence.json").write_text(json.dumps(evidence, indent=1) + "\n")
    settings = {
        named(run.key.method, run.settings): run.settings
        for results in reversed(parts)
        for run in results.runs
        if run.key.seed == 0
    }
    (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n")


def rows_of(results: Results) -> Rows:
    """Return the rows of an output folder; a run in bfloat16 says so in its method's name."""
    names = {run.key.method: named(run.key.method, run.settings) for run in results.runs}
    chosen = results.rows.filter(polars.col("metric").is_in(METRICS))
    return chosen.with_columns(polars.col("method").replace(names)).select(COLUMNS)


def named(method: str, settings: dict[str, Any]) -> str:
    return f"{method}, bfloat16" if settings.get("precision") == HALF else method


def intervals(parts: Sequence[Results], shifts: Sequence[str]) -> dict[str, Any]:
    """Return intervals by figure and method; differences only where the examples are the same."""
    found: dict[str, Any] = {}
    for results in reversed(parts):
        mine: dict[str, list[Reader]] = readers(results)
        against = HEADLINE if HEADLINE in mine else next(iter(mine))
        settings = {run.key.method: run.settings for run in results.runs}
        for figure, by_method in scored_intervals(mine, against, shifts).items():
            for method, values in by_method.items():
                known = values if against == HEADLINE else {"interval": values["interval"]}
                found.setdefault(figure, {})[named(method, settings[method])] = known
    return found


def page(name: str) -> str:
    paper_table = TABLES[name]
    rows = polars.read_parquet(KEPT / name / "rows.parquet")
    evidence = json.loads((KEPT / name / "evidence.json").read_text())
    words = {
        "name": name,
        "table": paper_table,
        "examples": f"{evidence['examples']:,}",
        "headline": headline_table(rows, paper_table, evidence["intervals"]),
        "differences": difference_table(rows, evidence["intervals"]),
        "entropy": entropy_table(rows, paper_table),
        "families": family_table(rows, paper_table),
        "settings": settings_table_of(KEPT / name / "settings.json"),
        "goals": table(
            ("figure", "goal", "found", ""), [one.cells() for one in goals(rows, paper_table)]
        ),
    }
    return render(f"paper_{name}", words)


def headline_table(rows: Rows, shown: PaperTable, intervals: dict[str, Any]) -> str:
    """Return one row per method: what was found here, and what the paper has."""
    figures = published(shown.paper)
    heads = ("method", "seeds", "test examples", "accuracy", "clean ECE", "micro ECE", "macro ECE",
             "paper: accuracy", "paper: micro ECE")  # fmt: skip
    lines = []
    for method in methods(rows):
        mine = rows.filter(polars.col("method") == method)
        name, seeds, *found = leading_cells(mine, method, shown.shifts, intervals)
        paper = (theirs(figures, one, method) for one in ("accuracy", "mean_micro_ece"))
        lines.append((name, seeds, f"{tested_on(mine):,}", *found, *paper))
    return table(heads, lines)


def tested_on(rows: Rows) -> int:
    return int(rows.filter(shift="clean")["examples"].to_list()[0])


def theirs(figures: dict[str, dict[str, float]], figure: str, method: str) -> str:
    """Return the paper's figure of a method; our deep ensemble stands beside its ensemble."""
    value = figures.get(figure, {}).get({"deep_ensemble": "ensemble"}.get(method, method))
    return "" if value is None else f"{value:.3f}"


def entropy_table(rows: Rows, shown: PaperTable) -> str:
    """Return the mean entropy at the last level: over the shifts, and of the paper's Table 2."""
    chosen = rows.filter(
        (polars.col("metric") == "entropy") & polars.col("shift").is_in(shown.shifts)
    )
    last = chosen.filter(polars.col("level") == polars.col("level").max().over("shift"))
    means = dict(last.group_by("method").agg(polars.col("value").mean()).iter_rows())
    figures = published(shown.paper)
    lines = [
        (f"`{method}`", f"{means[method]:.2f}", theirs(figures, "ood_entropy", method))
        for method in methods(rows)
        if method in means
    ]
    return table(("method", "entropy in nats", "paper"), lines)


def family_table(rows: Rows, shown: PaperTable) -> str:
    """Return the micro ECE by shift of the methods that have three seeds, or fit after those."""
    errors = by_family(rows)
    wanted = [PLAIN, "falcon", "deep_ensemble", *FITTED_AFTER, f"falcon_{FITTED_AFTER[1]}"]
    there = [method for method in wanted if method in errors]
    lines = [
        (shift, *(f"{errors[method][shift]:.3f}" for method in there)) for shift in shown.shifts
    ]
    return table(("shift", *(f"`{method}`" for method in there)), lines)


def baselines(rows: Rows) -> list[str]:
    """Return what is compared with: neither FALCON's rows nor those that only recalibrate."""
    return [
        method
        for method in methods(rows)
        if not method.startswith("falcon") and not method.endswith("temperature")
    ]


def goals(rows: Rows, shown: PaperTable) -> Iterator[Goal]:
    """Yield the goals of docs/results/protocol.md with what was found."""
    of = {method: rows.filter(polars.col("method") == method) for method in methods(rows)}
    shifts = list(shown.shifts)
    mine, plain = of[HEADLINE], of[PLAIN]
    micro, macro = (over(mine, shifts, one) for one in ("micro_ece", "macro_ece"))
    lowest = min(over(of[method], shifts, "micro_ece") for method in baselines(rows))
    errors = by_family(rows)
    worst = max(errors[HEADLINE][shift] - errors[PLAIN][shift] for shift in shifts)
    lost = clean(plain, "accuracy") - clean(mine, "accuracy")
    yield Goal("micro ECE", shown.goal, micro)
    yield Goal("micro ECE over plain's", 0.5, micro / over(plain, shifts, "micro_ece"))
    yield Goal("micro ECE over the lowest baseline's", 1.0, micro / lowest)
    yield Goal("macro ECE over plain's", 0.6, macro / over(plain, shifts, "macro_ece"))
    yield Goal("worst shift, micro ECE less plain's", 0.02, worst)
    yield Goal("plain's accuracy less that of the row", 0.01, lost)


if __name__ == "__main__":
    main()
