"""The tables of the pages on MNIST, from the files that ``benchmarks.mnist_results`` kept."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars

from benchmarks.choose_settings import read
from benchmarks.cost_page import STEPS
from benchmarks.pages import table
from benchmarks.timing import read_figures
from falconcal.io.output_folder import DEFAULT_VARIANT
from falconcal.io.trial_rows import best_of, is_eligible
from falconcal.report.charts.trial_charts import rank_correlations
from falconcal.report.study_evidence import resamples_for
from falconcal.report.tables.comparison_tables import corrected_chance
from falconcal.report.tables.paper_values import published

FIGURES = ("accuracy", "clean_ece", "micro_ece", "macro_ece")
HEADING = ("accuracy", "clean ECE", "micro ECE", "macro ECE")
PLAIN_METHOD = "dropout"  # whose cost is 1
RECALIBRATED = (
    "falcon", "falcon_temperature", "evidential", "evidential_temperature", "dropout",
    "temperature", "scaling_binning",
)  # fmt: skip
AS_PUBLISHED = ("falcon", "falcon_published")  # the paper's method, searched and with its weights
BEYOND = "falcon_beyond"  # searched at the budget of a run, from the published weights
NOT_YET = "Not measured yet."


@dataclass(frozen=True)
class Kept:
    """What was kept of one output folder."""

    folder: Path

    @property
    def there(self) -> bool:
        return (self.folder / "rows.parquet").exists()

    @cached_property
    def rows(self) -> polars.DataFrame:
        return polars.read_parquet(self.folder / "rows.parquet")

    @cached_property
    def comparisons(self) -> polars.DataFrame:
        return polars.read_parquet(self.folder / "comparisons.parquet")

    @cached_property
    def study(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "study.json").read_text())
        return content

    @cached_property
    def runs(self) -> dict[str, dict[str, Any]]:
        content: dict[str, dict[str, Any]] = json.loads((self.folder / "runs.json").read_text())
        return content

    @property
    def methods(self) -> list[str]:
        """Return the methods that have runs, in the order of the study."""
        found = set(self.rows["method"])
        return [name for name in self.study["methods"] if name in found]

    def of(self, method: str, variant: str = DEFAULT_VARIANT) -> polars.DataFrame:
        return self.rows.filter(method=method, variant=variant)

    def values(self, method: str, figure: str, variant: str = DEFAULT_VARIANT) -> list[float]:
        """Return a figure of the headline, one number per seed."""
        rows = self.of(method, variant)
        if figure in ("accuracy", "clean_ece"):
            metric = figure.removeprefix("clean_")
            return rows.filter(shift="clean", metric=metric).sort("seed")["value"].to_list()
        tested = rows.filter(polars.col("shift").is_in(self.study["shifts"]), metric=figure)
        means = tested.group_by("seed").agg(polars.col("value").mean()).sort("seed")
        return means["value"].to_list()

    def mean(self, method: str, figure: str, variant: str = DEFAULT_VARIANT) -> float:
        return statistics.fmean(self.values(method, figure, variant))

    def seconds(self, method: str) -> float:
        """Return processor seconds per epoch of training, the mean over seeds.

        A resumed run recorded only the seconds after it was resumed, and does not count.
        """
        runs = [run for name, run in self.runs.items() if name.split("/")[1] == method]
        records = [run for run in runs if not run["resumed"]] or runs
        return statistics.fmean(run["training_cpu_seconds"] / run["epochs"] for run in records)

    def criterion(self, method: str) -> str:
        """Return the criterion of the epochs that were kept, where they were chosen by it."""
        runs = [run for name, run in self.runs.items() if name.split("/")[1] == method]
        said = [run["validation"]["criterion"] for run in runs if run["validation"]]
        return spread(said) if said else ""

    def examples(self, method: str) -> int:
        return int(self.of(method).filter(shift="clean", metric="accuracy")["examples"][0])


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return a mean over seeds with the deviation between them."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def headline(main: Kept, few: Kept) -> str:
    """Return the figures of every method, the paper's, and the cost of training."""
    heading = ["method", "seeds", "test images", *HEADING, "micro ECE, interval"]
    heading += ["on 2,000", "criterion", "paper: accuracy", "paper: micro ECE", "training cost"]
    plain = main.seconds(PLAIN_METHOD)
    rows = [_headline_row(kept, name, plain) for name, kept in folder_by_method(main, few).items()]
    rows.sort(key=lambda row: row[5])
    return table(heading, rows)


def folder_by_method(main: Kept, few: Kept) -> dict[str, Kept]:
    """Return where each method is measured: on all test images, or else on 2,000."""
    found = dict.fromkeys(few.methods if few.there else [], few)
    return {**found, **dict.fromkeys(main.methods, main)}


def _headline_row(kept: Kept, method: str, plain: float) -> list[str]:
    paper = published(kept.study["name"])
    known = [paper.get(name, {}).get(method) for name in ("accuracy", "mean_micro_ece")]
    theirs = ["" if value is None else f"{value:.3f}" for value in known]
    cells = [spread(kept.values(method, figure)) for figure in FIGURES]
    seeds = str(len(kept.values(method, "accuracy")))
    return [
        method, seeds, f"{kept.examples(method):,}", *cells, _interval(kept, method),
        _few(kept, method), kept.criterion(method), *theirs,
        f"{kept.seconds(method) / plain:.2f}",
    ]  # fmt: skip


def _interval(kept: Kept, method: str) -> str:
    rows = kept.comparisons.filter(kind="interval", figure="mean_micro_ece", first=method)
    return f"{rows['low'][0]:.3f} to {rows['high'][0]:.3f}" if len(rows) else ""


def _few(kept: Kept, method: str) -> str:
    """Return the mean micro ECE on the images of the sampling methods."""
    if not (kept.folder / "few_rows.parquet").exists():
        return f"{kept.mean(method, 'micro_ece'):.3f}"  # it is the folder of these
    rows = polars.read_parquet(kept.folder / "few_rows.parquet")
    found = rows.filter(method=method, variant=DEFAULT_VARIANT, metric="micro_ece")["value"]
    return f"{statistics.fmean(found):.3f}"


def differences(kept: Kept, first: str = "falcon") -> str:
    """Return the mean micro ECE of one method minus that of each other, paired over examples."""
    found = kept.comparisons.filter(kind="difference", figure="mean_micro_ece")
    rows, resamples = [], resamples_for(len({*found["first"], *found["second"]}))
    for row in found.to_dicts():
        if first not in (row["first"], row["second"]):
            continue
        turned = row["second"] == first
        other, sign = (row["first"], -1) if turned else (row["second"], 1)
        low, high = sorted((sign * row["low"], sign * row["high"]))
        value = f"{sign * row['value']:+.3f}"
        chance = corrected_chance(row, resamples)
        rows.append([other, value, f"{low:+.3f} to {high:+.3f}", chance])
    return table(["falcon less", "difference", "95 % interval", "p, after Holm"], rows)


def tests(kept: Kept) -> str:
    """Return the paper's own tests."""
    rows = [
        [row["figure"].replace("_", " "), row["second"], f"{row['first_value']:.3f}",
         f"{row['second_value']:.3f}", f"{row['effect']:+.2f}", f"{row['p_holm']:.2g}"]
        for row in kept.comparisons.filter(kind="test").to_dicts()
    ]  # fmt: skip
    heading = ["test", "against", "falcon, median", "the other's", "effect", "p, after Holm"]
    return table(heading, rows)


def by_shift(kept: Kept, shifts: Sequence[str], metric: str = "micro_ece") -> str:
    """Return the micro ECE of every shift, one column per method."""
    rows = []
    for shift in shifts:
        means = [_value(kept, name, shift, metric) for name in kept.methods]
        rows.append([shift, *(f"{value:.3f}" for value in means)])
    return table(["shift", *kept.methods], rows)


def _value(kept: Kept, method: str, shift: str, metric: str, level: int | None = None) -> float:
    rows = kept.of(method).filter(shift=shift, metric=metric)
    rows = rows if level is None else rows.filter(level=level)
    return float(rows["value"].mean())  # type: ignore[arg-type]


def by_level(kept: Kept, metric: str, shifts: Sequence[str], methods: Sequence[str]) -> str:
    """Return a metric at every level, the mean over some shifts and seeds."""
    methods = [name for name in methods if name in kept.methods]
    rows = []
    for level in range(10):
        means = [
            statistics.fmean(_value(kept, name, shift, metric, level) for shift in shifts)
            for name in methods
        ]
        rows.append([str(level), *(f"{value:.3f}" for value in means)])
    return table(["level", *methods], rows)


def section(kept: Kept, heading: str) -> str:
    """Return a part of the summary that the report wrote."""
    text = (kept.folder / "summary.md").read_text()
    parts = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    return parts[heading].strip()


def classes(kept: Kept) -> str:
    """Return the mean confidence of outliers by predicted class, seeds pooled."""
    found = polars.read_csv(kept.folder / "classes.csv")
    names = sorted(found["class"].unique())
    rows = [
        [series, *(_of_class(own, name) for name in names)]
        for (series,), own in found.group_by("series", maintain_order=True)
    ]
    return table(["method", *map(str, names)], rows)


def _of_class(found: polars.DataFrame, name: int) -> str:
    """Return confidence and share of the outliers predicted as a class, if there are any."""
    row = found.filter(polars.col("class") == name)
    if not len(row):
        return ""
    return f"{row['confidence'][0]:.2f} ({row['examples'][0] / found['examples'].sum():.0%})"


def confidence_and_accuracy(kept: Kept, shifts: Sequence[str], methods: Sequence[str]) -> str:
    """Return mean confidence and accuracy at every level above the clean one."""
    rows = []
    for shift in shifts:
        found = kept.rows.filter(shift=shift, metric="accuracy").drop_nulls("level")
        levels = sorted(set(found["level"]) - {0})
        for method in [name for name in methods if name in kept.methods]:
            pairs = [
                [
                    _value(kept, method, shift, metric, level)
                    for metric in ("confidence", "accuracy")
                ]
                for level in levels
            ]
            rows.append([shift, method, *(f"{one:.2f} / {other:.2f}" for one, other in pairs)])
    return table(["shift", "method", *(f"level {level}" for level in levels)], rows)


def variants(kept: Kept, method: str = "falcon") -> str:
    """Return the figures of every variant of a method."""
    rows = []
    for name in sorted(set(kept.rows.filter(method=method)["variant"]), key=_place):
        cells = [spread(kept.values(method, figure, name)) for figure in FIGURES]
        seeds = str(len(kept.values(method, "accuracy", name)))
        rows.append([name, seeds, *cells, f"{zoomed(kept, method, name):.3f}"])
    return table(["variant", "seeds", *HEADING, "y-zoom, micro ECE"], rows)


def _place(variant: str) -> tuple[bool, str, float]:
    """Return what sorts variants: the plain one, then by setting and number."""
    setting, _, value = variant.partition("=")
    return variant != DEFAULT_VARIANT, setting, float(value or 0)


def zoomed(kept: Kept, method: str, variant: str) -> float:
    """Return the micro ECE under y-zoom, by which the paper measures sensitivity."""
    rows = kept.of(method, variant).filter(shift="yzoom", metric="micro_ece")
    return float(rows["value"].mean())  # type: ignore[arg-type]


def movement(kept: Kept, setting: str) -> float:
    """Return by how much the micro ECE under y-zoom changes over the range of a setting."""
    names = [
        name for name in set(kept.rows["variant"]) if name.startswith((setting, DEFAULT_VARIANT))
    ]
    values = [zoomed(kept, "falcon", name) for name in names]
    return max(values) - min(values)


def goals(main: Kept, few: Kept, best: str) -> str:
    """Return one row per goal; a method that was not run misses its goals."""
    measured = folder_by_method(main, few)
    lines = [row for name in (*AS_PUBLISHED, best, BEYOND) for row in _goals_of(measured, name)]
    return table(["goal", "", "measured"], lines)


def _goals_of(measured: dict[str, Kept], method: str) -> list[list[str]]:
    if method not in measured:
        return [[f"{method}", "missed", NOT_YET]]
    figure = {name: measured[method].mean(method, name) for name in FIGURES}
    limit = 0.082 if method in AS_PUBLISHED else 0.065
    asked: list[tuple[str, bool, str]] = [
        _at_most(f"mean micro ECE at most {limit}", figure["micro_ece"], limit),
        ("accuracy at least 0.985", figure["accuracy"] >= 0.985, f"{figure['accuracy']:.4f}"),
        _at_most("clean ECE at most 0.06", figure["clean_ece"], 0.06),
    ]
    if method in AS_PUBLISHED:
        lowest, below = min(
            (kept.mean(name, "micro_ece"), name)
            for name, kept in measured.items()
            if not name.startswith("falcon")
        )
        words = f"{figure['micro_ece']:.3f}; the lowest is {below} with {lowest:.3f}"
        asked.append(("below every baseline", figure["micro_ece"] < lowest, words))
        cost = statistics.median(read_figures(STEPS)["step, LeNet, shared"])
        asked.append(
            _at_most("a step at most 2.4 times a plain one ([cost](../cost.md))", cost, 2.4)
        )
    else:
        asked.append(_at_most("mean macro ECE at most 0.12", figure["macro_ece"], 0.12))
    return [[f"{method}: {goal}", "met" if met else "missed", text] for goal, met, text in asked]


def _at_most(goal: str, value: float, limit: float) -> tuple[str, bool, str]:
    return goal, value <= limit, f"{value:.3f}"


def core_hours(folders: Iterable[Kept], tuning: Path) -> dict[str, float]:
    """Return processor hours of the runs, and of the trials that recorded them."""
    spent = ("training_cpu_seconds", "evaluation_cpu_seconds")
    runs = sum(
        record.get(name) or 0.0
        for kept in folders
        if kept.there
        for record in kept.runs.values()
        for name in spent
    )
    rows = [row for file in sorted(tuning.glob("*trials.jsonl")) for row in read(file)]
    return {
        "runs": runs / 3600,
        "trials": sum(row.get("cpu_seconds", 0.0) for row in rows) / 3600,
        "counted": sum("cpu_seconds" in row for row in rows),
        "all": len(rows),
    }


def facts(kept: Kept, tuning: Path) -> dict[str, Any]:
    """Return the numbers in the text of the page."""
    rows = read(tuning / "trials.jsonl")
    tried = [row for row in rows if row["method"] == "falcon" and is_eligible(row)]
    micro = {shift: _value(kept, "falcon", shift, "micro_ece") for shift in kept.study["shifts"]}
    worst = max(micro, key=lambda shift: micro[shift])
    return {
        "lowest": min(tried, key=lambda row: row["test"]["micro_ece"]),
        "highest": max(row["test"]["micro_ece"] for row in tried),
        "chosen": best_of(tried)["falcon"],
        "correlations": rank_correlations(rows),
        "worst": worst,
        "worst_value": micro.pop(worst),
        "others": statistics.fmean(micro.values()),
        "seeds": [round(value, 3) for value in kept.values("falcon", "micro_ece")],
        "published": [round(value, 3) for value in kept.values("falcon_published", "micro_ece")],
        "kept": [run["kept_epoch"] for name, run in kept.runs.items() if "/falcon/" in name],
    }
