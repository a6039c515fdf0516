"""One page for all studies: does it work? Written from the rows that the other pages keep.

    python -m benchmarks.does_it_work

Writes ``docs/results/does_it_work.md``: for every study plain training, FALCON, FALCON with shift
temperature, and what only recalibrates a plainly trained network. Nothing is measured here. A study
whose rows are not there yet is left out.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars
from scipy.stats import t as student

from benchmarks.pages import PAGES, ROOT, render, table
from falconcal.evaluation.confidence_gaps import nearer

PLAIN, RAW = "dropout", "raw"  # trained here, or taken as others trained it
SHOWN = (PLAIN, RAW, "falcon", "falcon_shift_temperature", "temperature", "ladder_temperature",
         "ensemble_temperature", "one_curve_isotonic", "parameterised_temperature",
         "density_aware", "shift_temperature")  # fmt: skip
HEADING = ("method", "seeds", "accuracy", "clean ECE", "micro ECE", "macro ECE",
           "better / worse than plain", "nearer than plain")  # fmt: skip


@dataclass(frozen=True)
class StudyRows:
    """A study of the page: its rows, which shifts count, and what had a part in choices."""

    title: str
    file: str  # in results
    page: str  # in docs/results
    shifts: str  # a pattern of the names of those that count
    development: bool = False
    seeds: int | None = None  # those below it; None takes all
    evidence: str | None = None  # intervals over examples and seeds, in results

    def is_there(self) -> bool:
        return (ROOT / "results" / self.file).exists()


AFFINE, CORRUPTED = r"^(rot|x|y|shear)", r"^corrupt_"


def paper_table(title: str, name: str, shifts: str) -> StudyRows:
    """Return one of the studies that benchmarks/published_tables.py keeps."""
    folder = f"paper/{name}"
    return StudyRows(title, f"{folder}/rows.parquet", f"paper_{name}.md", shifts,
                     evidence=f"{folder}/evidence.json")  # fmt: skip


STUDIES = (
    StudyRows("Handwritten digits, the demo's settings, nine affine shifts", "promise/rows.parquet",
              "promise.md", AFFINE, development=True),
    StudyRows("Handwritten digits, LeNet, nine affine shifts", "promise/digits/rows.parquet",
              "promise_digits.md", AFFINE, development=True,
              evidence="promise/digits/evidence.json"),
    StudyRows("Handwritten digits, LeNet, 19 corruptions", "promise/digits/rows.parquet",
              "promise_digits.md", CORRUPTED, development=True),
    StudyRows("MNIST, LeNet, nine affine shifts", "promise/mnist/rows.parquet", "promise_mnist.md",
              AFFINE, evidence="promise/mnist/evidence.json"),
    StudyRows("MNIST, LeNet, 19 corruptions", "promise/mnist/rows.parquet", "promise_mnist.md",
              CORRUPTED),
    StudyRows("Fashion-MNIST, LeNet, nine affine shifts", "promise/fashion_mnist/rows.parquet",
              "promise_fashion_mnist.md", AFFINE, development=True,
              evidence="promise/fashion_mnist/evidence.json"),
    StudyRows("Fashion-MNIST, LeNet, 19 corruptions", "promise/fashion_mnist/rows.parquet",
              "promise_fashion_mnist.md", CORRUPTED, development=True),
    StudyRows("CIFAR-10, a ResNet-20 that others trained, nine affine shifts",
              "promise/resnet20/rows.parquet", "promise_resnet20.md", AFFINE,
              evidence="promise/resnet20/evidence.json"),
    StudyRows("CIFAR-10, a ResNet-20 that others trained, 19 corruptions",
              "promise/resnet20/rows.parquet", "promise_resnet20.md", CORRUPTED),
    StudyRows("CIFAR-10, a ResNet-56 that others trained, nine affine shifts",
              "promise/resnet56/rows.parquet", "promise_resnet56.md", AFFINE,
              evidence="promise/resnet56/evidence.json"),
    StudyRows("CIFAR-10, a ResNet-56 that others trained, 19 corruptions",
              "promise/resnet56/rows.parquet", "promise_resnet56.md", CORRUPTED),
    paper_table("CIFAR-10, a small VGG, nine affine shifts", "cifar10", AFFINE),
    paper_table("20 Newsgroups, LSTM, swapped words", "newsgroups", r"^word_swap"),
    paper_table("Sequential MNIST, GRU, nine affine shifts", "gru", AFFINE),
    paper_table("Sequential MNIST, LSTM, nine affine shifts", "lstm", AFFINE),
    paper_table("ImageNet, EfficientNet-Lite0, 19 corruptions", "imagenet", CORRUPTED),
    StudyRows("From MNIST to USPS", "natural_shifts/usps.parquet", "usps.md", r"^usps$"),
    StudyRows("Gas sensors over 36 months", "natural_shifts/gas_drift.parquet", "gas_drift.md",
              r"^later$", development=True, seeds=3),
    StudyRows("Electricity prices in order of time", "natural_shifts/elec2.parquet", "elec2.md",
              r"^later$"),
)  # fmt: skip


def main() -> None:
    (PAGES / "does_it_work.md").write_text(page())


def page() -> str:
    sections = [
        {
            "title": study.title,
            "page": study.page,
            "development": study.development,
            "table": table(HEADING, [cells(study, method) for method in methods(study)]),
        }
        for study in STUDIES
        if study.is_there()
    ]
    return render("does_it_work", {"sections": sections})


def methods(study: StudyRows) -> list[str]:
    there = set(rows_of(study)["method"])
    return [method for method in SHOWN if method in there]


def plain_of(rows: polars.DataFrame) -> str:
    return PLAIN if PLAIN in set(rows["method"]) else RAW


def rows_of(study: StudyRows) -> polars.DataFrame:
    rows = polars.read_parquet(ROOT / "results" / study.file)
    return rows if study.seeds is None else rows.filter(polars.col("seed") < study.seeds)


def cells(study: StudyRows, method: str) -> tuple[str, ...]:
    """Return the row of a method: means over seeds, levels and shifts, with intervals."""
    rows = rows_of(study)
    mine = rows.filter(polars.col("method") == method)
    tested = mine.filter(polars.col("shift").str.contains(study.shifts))
    home = tested.filter(polars.col("level") == 0)
    levels = tested.filter(polars.col("level").is_not_null())
    known = intervals(study, method)
    return (
        f"`{method}`",
        str(mine["seed"].n_unique()),
        f"{mean(by_seed(home, 'accuracy')):.3f}",
        shown(by_seed(home, "ece"), known.get("clean_ece")),
        shown(by_seed(tested, "micro_ece"), known.get("micro_ece")),
        shown(by_seed(levels, "ece"), known.get("macro_ece")),
        *beside_plain(rows, study, method),
    )


def beside_plain(rows: polars.DataFrame, study: StudyRows, method: str) -> tuple[str, str]:
    if method == plain_of(rows):
        return "", ""
    return counted(rows, study, method), f"{share_nearer(rows, study, method):.2f}"


def intervals(study: StudyRows, method: str) -> dict[str, Sequence[float]]:
    """Return the kept intervals over examples and seeds, by figure."""
    if study.evidence is None:
        return {}
    kept: dict[str, Any] = json.loads((ROOT / "results" / study.evidence).read_text())["intervals"]
    return {figure: of[method]["interval"] for figure, of in kept.items() if method in of}


def by_seed(rows: polars.DataFrame, metric: str) -> list[float]:
    """Return the means over shifts of a metric's mean over levels, one per seed."""
    chosen = rows.filter(polars.col("metric") == metric)
    shifts = chosen.group_by("seed", "shift").agg(polars.col("value").mean())
    return shifts.group_by("seed").agg(polars.col("value").mean())["value"].to_list()


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def shown(values: Sequence[float], interval: Sequence[float] | None) -> str:
    """Return a mean with its interval: the kept one, or Student's over three seeds or more."""
    if not values:
        return ""
    if interval is None and len(values) >= 3:
        half = student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
        interval = (max(mean(values) - half, 0.0), mean(values) + half)
    if interval is None:
        return f"{mean(values):.3f}"
    return f"{mean(values):.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


def counted(rows: polars.DataFrame, study: StudyRows, method: str) -> str:
    """Return on how many shifts, or levels of the only shift, ECE is lower and higher than plain's.

    Levels above 0 count, means over seeds.
    """
    chosen = rows.filter(
        polars.col("shift").str.contains(study.shifts)
        & (polars.col("level") > 0)
        & (polars.col("metric") == "ece")
    )
    unit = "shift" if chosen["shift"].n_unique() > 1 else "level"
    means = chosen.group_by("method", unit).agg(polars.col("value").mean())
    beside = means.pivot(on="method", index=unit, values="value")
    mine, plain = beside[method], beside[plain_of(rows)]
    return f"{(mine < plain).sum()} / {(mine > plain).sum()}"


def share_nearer(rows: polars.DataFrame, study: StudyRows, method: str) -> float:
    """Return the share of cases in which mean confidence is nearer to accuracy than plain's."""
    tested = rows.filter(polars.col("shift").str.contains(study.shifts))
    return statistics.fmean(nearer(tested, method, plain_of(rows)))


if __name__ == "__main__":
    main()
