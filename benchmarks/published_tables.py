"""The paper's other tables, measured here: CIFAR-10, 20 Newsgroups, sequential MNIST, ImageNet.

    python -m benchmarks.published_tables lstm runs/paper/lstm runs/paper/lstm-one-seed
    python -m benchmarks.published_tables

The first keeps what the page needs of the output folders of ``falconcal run`` in
``results/paper/NAME``, the first folder's rows where two have the same, and writes
``docs/results/paper_NAME.md``; the second writes the pages of all tables that are kept. Intervals
are over test examples and seeds. What was to be tested stands in ``docs/results/protocol.md``.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars

from benchmarks.pages import PAGES, ROOT, render, table
from benchmarks.promise import AFFINE
from benchmarks.promise_networks import (
    CORRUPTED,
    FITTED,
    HEADLINE,
    PLAIN,
    TEMPERATURE,
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
FITTED_AFTER = (TEMPERATURE, FITTED)  # rows that recalibrate are no baselines
OTHER_TESTS = {"real": "by ReaL labels", "objectnet": "ObjectNet's sample"}  # of ImageNet's models
Rows = polars.DataFrame


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: where its figures are, and the goals that were stated for it."""

    study: str
    paper: str  # in published.json
    goals: Callable[[Rows, Sequence[str]], Iterator[Goal]]
    shifts: tuple[str, ...] = tuple(AFFINE)
    figure: str = "mean_micro_ece"  # what the paper has beside the accuracy


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
        "other_tests": other_tests_table(rows),
        "goals": table(
            ("figure", "goal", "found", ""),
            [one.cells() for one in paper_table.goals(rows, paper_table.shifts)],
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
        paper = (theirs(figures, one, method) for one in ("accuracy", shown.figure))
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


def other_tests_table(rows: Rows) -> str:
    """Return accuracy and ECE of the tests that are no shift of the table; nothing without them."""
    there = [name for name in OTHER_TESTS if name in set(rows["shift"])]
    if not there:
        return ""
    lines = []
    for method, mine in by_method(rows).items():
        level = mine.filter(polars.col("level").ne_missing(0))
        cells = (f"{over(level, [name], one):.3f}" for name in there for one in ("accuracy", "ece"))
        lines.append((f"`{method}`", *cells))
    heads = (f"{OTHER_TESTS[name]}: {one}" for name in there for one in ("accuracy", "ECE"))
    return table(("method", *heads), lines)


def baselines(rows: Rows) -> list[str]:
    """Return what is compared with: neither FALCON's rows nor those that only recalibrate."""
    return [
        method
        for method in methods(rows)
        if not method.startswith("falcon") and not method.endswith("temperature")
    ]


def headline_goals(micro_goal: float, rows: Rows, shifts: Sequence[str]) -> Iterator[Goal]:
    """Yield the goals of docs/results/protocol.md with what was found."""
    of, names = by_method(rows), list(shifts)
    mine, plain = of[HEADLINE], of[PLAIN]
    micro, macro = (over(mine, names, one) for one in ("micro_ece", "macro_ece"))
    lowest = min(over(of[method], names, "micro_ece") for method in baselines(rows))
    errors = by_family(rows)
    worst = max(errors[HEADLINE][shift] - errors[PLAIN][shift] for shift in shifts)
    lost = clean(plain, "accuracy") - clean(mine, "accuracy")
    yield Goal("micro ECE", micro_goal, micro)
    yield Goal("micro ECE over plain's", 0.5, micro / over(plain, names, "micro_ece"))
    yield Goal("micro ECE over the lowest baseline's", 1.0, micro / lowest)
    yield Goal("macro ECE over plain's", 0.6, macro / over(plain, names, "macro_ece"))
    yield Goal("worst shift, micro ECE less plain's", 0.02, worst)
    yield Goal("plain's accuracy less that of the row", 0.01, lost)


def imagenet_goals(rows: Rows, shifts: Sequence[str]) -> Iterator[Goal]:
    of = by_method(rows)
    warm = of[TEMPERATURE]
    for method in (FITTED, HEADLINE):
        ratio = over(of[method], list(shifts), "ece") / over(warm, list(shifts), "ece")
        gap = clean(of[method], "ece") - clean(warm, "ece")
        yield Goal(f"`{method}`, ECE under corruptions over plain temperature's", 0.7, ratio)
        yield Goal(f"`{method}`, clean ECE less plain temperature's", 0.01, gap)


def by_method(rows: Rows) -> dict[str, Rows]:
    return {method: rows.filter(polars.col("method") == method) for method in methods(rows)}


TABLES = {
    "cifar10": PaperTable("cifar10_small", "cifar10", partial(headline_goals, 0.127)),
    "newsgroups": PaperTable(
        "newsgroups_small", "newsgroups", partial(headline_goals, 0.158),
        ("word_swap", "word_swap_anywhere"),
    ),
    "gru": PaperTable(
        "sequential_mnist_gru_small", "sequential_mnist_gru", partial(headline_goals, 0.108)
    ),
    "lstm": PaperTable(
        "sequential_mnist_lstm_small", "sequential_mnist_lstm", partial(headline_goals, 0.118)
    ),
    "imagenet": PaperTable(
        "imagenet_lite", "imagenet", imagenet_goals, tuple(CORRUPTED),
        "mean_micro_ece_19_corruptions",
    ),
}  # fmt: skip

if __name__ == "__main__":
    main()
