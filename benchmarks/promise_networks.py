"""The promise on one network: every row of a run of the study ``promise``, with intervals.

    python -m benchmarks.promise_networks mnist runs/promise/mnist
    python -m benchmarks.promise_networks mnist

The first keeps what the page needs in ``results/promise/NAME`` and writes
``docs/results/promise_NAME.md``; the second writes the page from what is kept. The run must have
been measured under the nine affine shifts and the 19 corruptions; where the latter were measured in
a copy of its folder, that one is named after it. Intervals are over examples and seeds: a resample
draws the seeds, and the same test examples of all shifts and levels for all methods.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import polars

from benchmarks.pages import PAGES, ROOT, render, table
from benchmarks.promise import AFFINE, CORRUPTIONS, KIN, TURNS
from falconcal.evaluation.score_rows import scores_by_level
from falconcal.evidence.pooled import drawn_counts, shift_draws
from falconcal.report.results import Results, StoredRun, load_results, open_scores

KEPT = ROOT / "results" / "promise"
PLAIN, TEMPERATURE, HEADLINE = "dropout", "temperature", "falcon_shift_temperature"
RAW, FITTED = "raw", "shift_temperature"  # of networks that are not trained here
METRICS = ("accuracy", "confidence", "ece", "micro_ece", "macro_ece")
FIGURES = ("micro_ece", "macro_ece", "clean_ece")
CORRUPTED = [shift.name for shift in CORRUPTIONS]
FAMILIES = [*AFFINE, *CORRUPTED]
UNSEEN = [name for name in FAMILIES if name not in KIN]
RESAMPLES = 500
Rows = polars.DataFrame
Reader = Callable[[str], dict[int, Any]]  # scores of a shift by level


@dataclass(frozen=True)
class Goal:
    """A goal that was stated before it was measured, and what was found."""

    words: str
    limit: float
    found: float
    at_least: bool = False

    def cells(self) -> tuple[str, ...]:
        side = "at least" if self.at_least else "at most"
        met = self.found >= self.limit if self.at_least else self.found <= self.limit
        return self.words, f"{side} {self.limit:g}", f"{self.found:.3f}", "met" if met else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the network's page, such as mnist")
    parser.add_argument("runs", type=Path, nargs="*", help="output folders of the measured run")
    arguments = parser.parse_args()
    if arguments.runs:
        keep(arguments.name, [load_results(folder) for folder in arguments.runs])
    (PAGES / f"promise_{arguments.name}.md").write_text(page(arguments.name))


def keep(name: str, parts: Sequence[Results]) -> None:
    """Keep the rows, the intervals and the settings of a run."""
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    results, columns = parts[0], ["method", "seed", "shift", "level", "metric", "value"]
    rows = polars.concat([part.rows.select(columns) for part in parts])
    once = rows.filter(polars.col("metric").is_in(METRICS)).unique(
        columns[:-1], keep="first", maintain_order=True
    )
    once.write_parquet(folder / "rows.parquet", compression="zstd")
    kept = {
        "intervals": scored_intervals(readers(results), HEADLINE),
        "examples": examples(results),
    }
    (folder / "evidence.json").write_text(json.dumps(kept, indent=1) + "\n")
    settings = {one.key.method: one.settings for one in results.runs if one.key.seed == 0}
    (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n")


def examples(results: Results) -> int:
    return len(read_levels(results.runs[0], "clean")[0])


def readers(results: Results) -> dict[str, list[Reader]]:
    """Return for each method what reads the scores of its runs."""
    found: dict[str, list[Reader]] = {}
    for run in results.runs:
        found.setdefault(run.key.method, []).append(partial(read_levels, run))
    return found


def scored_intervals(
    runs: dict[str, list[Reader]], headline: str, shifts: Sequence[str] = AFFINE
) -> dict[str, Any]:
    """Return intervals over examples and runs: of each method, and of its gap to the headline."""
    values = {method: figure_draws(mine, shifts) for method, mine in runs.items()}
    return {
        figure: {
            method: {
                "interval": quantiles(drawn[figure]),
                "headline_less_this": quantiles(values[headline][figure] - drawn[figure]),
            }
            for method, drawn in values.items()
        }
        for figure in FIGURES
    }


def figure_draws(runs: list[Reader], shifts: Sequence[str]) -> dict[str, numpy.ndarray]:
    """Return each figure in every resample of the runs and the examples: (R,)."""
    by_run = [run_draws(run, shifts) for run in runs]
    drawn = numpy.random.default_rng(0).integers(len(runs), size=(RESAMPLES, len(runs)))
    rows = numpy.arange(RESAMPLES)[:, None]
    return {
        figure: numpy.stack([one[figure] for one in by_run])[drawn, rows].mean(1)
        for figure in FIGURES
    }


def run_draws(read: Reader, names: Sequence[str]) -> dict[str, numpy.ndarray]:
    """Return the mean over shifts of each figure, in every resample of the examples."""
    clean = read("clean")[0]
    counts = drawn_counts(len(clean), RESAMPLES, seed=0)
    home = shift_draws([clean], counts)["micro_ece"]
    shifts = [shift_draws([clean, *read(shift).values()], counts) for shift in names]
    means = {
        figure: numpy.mean([numpy.abs(one[figure].drawn).sum(1) for one in shifts], 0)
        for figure in FIGURES[:2]
    }
    return {**means, "clean_ece": numpy.abs(home.drawn).sum(1)}


def read_levels(run: StoredRun, shift: str) -> dict[int, Any]:
    """Return the scores of a shift by level, examples in their order."""
    chosen = open_scores(run).filter(polars.col("shift") == shift).sort("level", "example")
    return scores_by_level(chosen.collect(engine="streaming"))


def quantiles(values: numpy.ndarray) -> list[float]:
    return [round(float(value), 5) for value in numpy.quantile(values, (0.025, 0.975))]


def page(name: str) -> str:
    rows = polars.read_parquet(KEPT / name / "rows.parquet")
    evidence = json.loads((KEPT / name / "evidence.json").read_text())
    words = {
        "name": name,
        "examples": f"{evidence['examples']:,}",
        "seeds": rows["seed"].n_unique(),
        "headline": headline_table(rows, evidence["intervals"]),
        "differences": difference_table(rows, evidence["intervals"]),
        "wins": wins_table(rows),
        "families": family_table(rows),
        "turned": turned_table(rows),
        "settings": settings_table_of(KEPT / name / "settings.json"),
        "goals": table(
            ("figure", "goal", "found", ""), [goal.cells() for goal in goals(name, rows)]
        ),
    }
    return render(f"promise_{name}", words)


def methods(rows: Rows) -> list[str]:
    return list(dict.fromkeys(rows["method"]))


def plain(rows: Rows) -> str:
    return PLAIN if PLAIN in methods(rows) else RAW


def headline(rows: Rows) -> str:
    return HEADLINE if HEADLINE in methods(rows) else FITTED


def headline_table(rows: Rows, evidence: dict[str, Any]) -> str:
    """Return one row per method: the figures, with intervals over examples and seeds."""
    heads = ("method", "seeds", "accuracy", "clean ECE", "micro ECE", "macro ECE",
             "19 corruptions", "unseen ones")  # fmt: skip
    lines = []
    for method in methods(rows):
        mine = rows.filter(polars.col("method") == method)
        unseen = [name for name in CORRUPTED if name not in KIN]
        corrupted = (f"{over(mine, names, 'ece'):.3f}" for names in (CORRUPTED, unseen))
        lines.append((*leading_cells(mine, method, AFFINE, evidence), *corrupted))
    return table(heads, lines)


def leading_cells(
    rows: Rows, method: str, shifts: Sequence[str], intervals: dict[str, Any]
) -> tuple[str, ...]:
    """Return a method's name, seeds and accuracy, and its three errors with their intervals."""
    errors = {name: over(rows, list(shifts), name) for name in ("micro_ece", "macro_ece")}
    errors = {"clean_ece": clean(rows, "ece"), **errors}
    return (
        f"`{method}`",
        str(rows["seed"].n_unique()),
        f"{clean(rows, 'accuracy'):.3f}",
        *(with_interval(value, intervals[name][method]) for name, value in errors.items()),
    )


def with_interval(value: float, found: dict[str, list[float]]) -> str:
    low, high = found["interval"]
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def difference_table(rows: Rows, evidence: dict[str, Any]) -> str:
    """Return how far the headline row's errors lie from those of the others."""
    lines = []
    for method in methods(rows):
        # none where the method was tested on other examples than the headline row
        bounds = [evidence[figure][method].get("headline_less_this") for figure in FIGURES]
        if method != headline(rows) and all(bounds):
            lines.append((f"`{method}`", *(f"{low:+.3f} to {high:+.3f}" for low, high in bounds)))
    return table(("less that of", "micro ECE", "macro ECE", "clean ECE"), lines)


def clean(rows: Rows, metric: str) -> float:
    return over(rows, ["clean"], metric)


def over(rows: Rows, shifts: list[str], metric: str) -> float:
    """Return the mean of a metric over shifts, their levels above 0 and seeds."""
    chosen = rows.filter((polars.col("metric") == metric) & polars.col("shift").is_in(shifts))
    above = chosen if shifts == ["clean"] else chosen.filter(polars.col("level").ne_missing(0))
    return float(above["value"].mean())  # type: ignore[arg-type]


def by_family(rows: Rows, metric: str = "micro_ece") -> dict[str, dict[str, float]]:
    """Return the micro ECE, or another, of each method by family, mean over seeds."""
    chosen = rows.filter(polars.col("metric") == metric)
    means = chosen.group_by("method", "shift").agg(polars.col("value").mean())
    found: dict[str, dict[str, float]] = {}
    for method, shift, value in means.iter_rows():
        found.setdefault(method, {})[shift] = value
    return found


def wins_table(rows: Rows) -> str:
    """Return how many families a method does better and worse on than others, all and unseen."""
    errors = by_family(rows)
    lines = []
    for method in methods(rows):
        for rival in (plain(rows), TEMPERATURE):
            if method in (plain(rows), rival):
                continue
            worst = max(FAMILIES, key=lambda name: errors[method][name] - errors[rival][name])
            lines.append(
                (
                    f"`{method}`",
                    f"`{rival}`",
                    wins(errors[method], errors[rival], FAMILIES),
                    wins(errors[method], errors[rival], UNSEEN),
                    f"{worst} {errors[method][worst] - errors[rival][worst]:+.3f}",
                )
            )
    heads = ("method", "against", f"better, of {len(FAMILIES)}", f"of {len(UNSEEN)} unseen",
             "worst family, difference")  # fmt: skip
    return table(heads, lines)


def wins(mine: dict[str, float], others: dict[str, float], families: list[str]) -> str:
    return str(sum(mine[name] < others[name] for name in families))


def family_table(rows: Rows) -> str:
    """Return the micro ECE by family of the rows that matter most, kin marked."""
    errors, shown = by_family(rows), shown_methods(rows)
    lines = [
        (f"{name}{' (kin)' if name in KIN else ''}", *(f"{errors[one][name]:.3f}" for one in shown))
        for name in FAMILIES
    ]
    return table(("family", *(f"`{one}`" for one in shown)), lines)


def shown_methods(rows: Rows) -> list[str]:
    wanted = (plain(rows), TEMPERATURE, "ladder_temperature", FITTED, "falcon", HEADLINE)
    return [method for method in wanted if method in methods(rows)]


def turned_table(rows: Rows) -> str:
    """Return accuracy and mean confidence of images turned by 90 degrees."""
    last = rows.filter(polars.col("shift").is_in(TURNS) & (polars.col("level") == 9))
    lines = []
    for method in methods(rows):
        mine = last.filter(polars.col("method") == method)
        values = [over(mine, list(TURNS), metric) for metric in ("accuracy", "confidence")]
        lines.append((f"`{method}`", *(f"{value:.3f}" for value in values)))
    return table(("method", "accuracy", "mean confidence"), lines)


def settings_table_of(file: Path) -> str:
    """Return the settings of the methods that were trained, if any were."""
    settings = json.loads(file.read_text()) if file.exists() else {}
    names = ("epochs", "learning_rate", "dropout", "l2_weight", "entropy_weight",
             "calibration_weight", "calibration_learning_rate")  # fmt: skip
    trained = {name: values for name, values in settings.items() if "epochs" in values}
    lines = [
        (f"`{name}`", *(f"{values[one]:g}" if values.get(one) is not None else "" for one in names))
        for name, values in trained.items()
    ]
    return table(("method", *names), lines)


def goals(name: str, rows: Rows) -> Iterator[Goal]:
    """Yield the goals of docs/results/protocol.md with what was found."""
    errors = by_family(rows)
    ours, raw = errors[headline(rows)], errors[plain(rows)]
    mine = rows.filter(polars.col("method") == headline(rows))
    worst = max(ours[family] - raw[family] for family in FAMILIES)
    yield from GOALS[name](rows, mine)
    yield Goal("headline row, worst family less raw plain's", 0.02, worst)


def mnist_goals(rows: Rows, mine: Rows) -> Iterator[Goal]:
    falcon = rows.filter(polars.col("method") == "falcon")
    yield Goal("headline row, micro ECE", 0.082, over(mine, AFFINE, "micro_ece"))
    yield Goal("headline row, macro ECE", 0.11, over(mine, AFFINE, "macro_ece"))
    yield Goal("headline row, clean ECE", 0.015, clean(mine, "ece"))
    yield Goal("headline row, ECE under the 19 corruptions", 0.03, over(mine, CORRUPTED, "ece"))
    yield Goal("headline row, accuracy", 0.985, clean(mine, "accuracy"), at_least=True)
    for method in (HEADLINE, "shift_temperature"):
        one = rows.filter(polars.col("method") == method)
        yield Goal(f"any single model: `{method}`, micro ECE", 0.07, over(one, AFFINE, "micro_ece"))
        yield Goal(f"`{method}`, macro ECE", 0.105, over(one, AFFINE, "macro_ece"))
        yield Goal(f"`{method}`, clean ECE", 0.02, clean(one, "ece"))
    yield Goal("FALCON alone, micro ECE", 0.082, over(falcon, AFFINE, "micro_ece"))


def fashion_goals(rows: Rows, mine: Rows) -> Iterator[Goal]:
    warm = rows.filter(polars.col("method") == TEMPERATURE)
    ratio = over(mine, AFFINE, "micro_ece") / over(warm, AFFINE, "micro_ece")
    yield Goal("headline row, micro ECE over plain temperature's", 0.4, ratio)
    yield Goal(
        "headline row, clean ECE less plain temperature's", 0.02,
        clean(mine, "ece") - clean(warm, "ece"),
    )  # fmt: skip


def pretrained_goals(rows: Rows, mine: Rows) -> Iterator[Goal]:
    warm = rows.filter(polars.col("method") == TEMPERATURE)
    for words, shifts, metric, limit in (
        ("micro ECE", AFFINE, "micro_ece", 0.45),
        ("ECE under the 19 corruptions", CORRUPTED, "ece", 0.75),
    ):
        ratio = over(mine, shifts, metric) / over(warm, shifts, metric)
        yield Goal(f"shift temperature, {words} over plain temperature's", limit, ratio)
    gap = clean(mine, "ece") - clean(warm, "ece")
    yield Goal("shift temperature, clean ECE less plain temperature's", 0.02, gap)


def no_further_goals(_rows: Rows, _mine: Rows) -> Iterator[Goal]:
    yield from ()


GOALS = {
    "digits": no_further_goals,
    "mnist": mnist_goals,
    "fashion_mnist": fashion_goals,
    "resnet20": pretrained_goals,
    "resnet56": pretrained_goals,
}

if __name__ == "__main__":
    main()
