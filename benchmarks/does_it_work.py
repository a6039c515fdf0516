"""One page for all studies: does it work? Written from the rows that the other pages keep.

    python -m benchmarks.does_it_work

Writes ``docs/results/does_it_work.md``: for every study plain training, FALCON, FALCON with shift
temperature, and what only recalibrates a plainly trained network. Nothing is measured here.
"""

import statistics
from dataclasses import dataclass

import polars

from benchmarks.pages import PAGES, ROOT, render, table

PLAIN = "dropout"
SHOWN = ("dropout", "falcon", "falcon_shift_temperature", "temperature", "ladder_temperature",
         "shift_temperature")  # fmt: skip
CASE = ("seed", "shift", "level")
HEADING = ("method", "seeds", "accuracy at home", "ECE at home", "ECE under shift",
           "micro ECE", "nearer than plain")  # fmt: skip


@dataclass(frozen=True)
class StudyRows:
    """A study of the page: its rows, which shifts count, and what had a part in choices."""

    title: str
    file: str  # in results
    page: str  # in docs/results
    shifts: str  # a pattern of the names of those that count
    development: bool = False
    seeds: int | None = None  # those below it; None takes all


STUDIES = (
    StudyRows("Handwritten digits, LeNet, nine affine shifts", "promise/rows.parquet", "promise.md",
              r"^(rot|x|y|shear)", development=True),
    StudyRows("MNIST, LeNet, nine affine shifts", "promise/mnist/rows.parquet", "promise_mnist.md",
              r"^(rot|x|y|shear)"),
    StudyRows("MNIST, LeNet, 19 corruptions", "promise/mnist/rows.parquet", "promise_mnist.md",
              r"^corrupt_"),
    StudyRows("Gas sensors over 36 months", "natural_shifts/gas_drift.parquet", "gas_drift.md",
              r"^later$", seeds=3),
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
    ]
    return render("does_it_work", {"sections": sections})


def methods(study: StudyRows) -> list[str]:
    there = set(rows_of(study)["method"])
    return [method for method in SHOWN if method in there]


def rows_of(study: StudyRows) -> polars.DataFrame:
    rows = polars.read_parquet(ROOT / "results" / study.file)
    return rows if study.seeds is None else rows.filter(polars.col("seed") < study.seeds)


def cells(study: StudyRows, method: str) -> tuple[str, ...]:
    """Return the row of a method: means over seeds, levels and shifts."""
    rows = rows_of(study)
    mine = rows.filter(polars.col("method") == method)
    tested = mine.filter(polars.col("shift").str.contains(study.shifts))
    home = mine.filter(polars.col("level") == 0)
    away = tested.filter(polars.col("level") > 0)
    return (
        f"`{method}`",
        str(mine["seed"].n_unique()),
        shown(home, "accuracy"),
        shown(home, "ece"),
        shown(away, "ece"),
        shown(tested, "micro_ece"),
        "" if method == PLAIN else f"{share_nearer(rows, study, method):.2f}",
    )


def shown(rows: polars.DataFrame, metric: str) -> str:
    """Return the mean over seeds of a metric, and the standard deviation between them."""
    chosen = rows.filter(polars.col("metric") == metric)
    values = chosen.group_by("seed").agg(polars.col("value").mean())["value"].to_list()
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


def share_nearer(rows: polars.DataFrame, study: StudyRows, method: str) -> float:
    """Return the share of cases in which mean confidence is nearer to accuracy than plain's."""
    gaps = (
        rows.filter(
            polars.col("shift").str.contains(study.shifts)
            & (polars.col("level") > 0)
            & polars.col("metric").is_in(["confidence", "accuracy"])
            & polars.col("method").is_in([method, PLAIN])
        )
        .pivot(on="metric", index=["method", *CASE], values="value")
        .with_columns((polars.col("confidence") - polars.col("accuracy")).abs().alias("gap"))
        .pivot(on="method", index=list(CASE), values="gap")
    )
    return float((gaps[method] < gaps[PLAIN]).mean())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
