"""Outliers in the report: a table, confidences beside those of the clean data, and by class."""

import altair
import polars

from falconcal.drawing.layers import layered
from falconcal.drawing.theme import COLOURS, INK, SHAPES, cycled
from falconcal.evaluation.under_shift import CLEAN, OUTLIER_LEVEL
from falconcal.report.charts.figure import Figure, colour, grid, legend_width, whole_numbers
from falconcal.report.confidence_cells import bin_expression
from falconcal.report.results import (
    Results,
    StoredRun,
    class_count,
    explaining_read_errors,
    open_scores,
)
from falconcal.report.study_evidence import StudyEvidence
from falconcal.report.tables.comparison_tables import ComparisonTable
from falconcal.report.tables.headline_columns import NOT_KNOWN, Column

OUTLIER_CELLS = 20  # of confidence
BY_CONFIDENCE, BY_ENTROPY = "by confidence", "by entropy"
OUTLIER_COLUMNS = (
    Column("confidence", "Confidence", "mean confidence; the lower the better"),
    Column("entropy", "Entropy", "mean entropy in nats; the higher the better"),
    *(
        Column(f"{signal}_{name}", f"{heading} {words}", f"{meaning}; {words}")
        for signal, words in (("confidence", BY_CONFIDENCE), ("entropy", BY_ENTROPY))
        for name, heading, meaning in (
            ("auroc", "AUROC", "how often a clean example is surer than an outlier; 0.5 is chance"),
            ("aupr", "AUPR", "average precision, clean examples as positives"),
            ("fpr_at_95", "FPR95", "share of outliers accepted where 95 % of clean examples are"),
        )
    ),
)
OUTLIERS_NOTE = (
    "Outliers have no true class: nothing about accuracy or calibration can be said of them. A "
    "trustworthy model is less sure of them than of clean examples. Means over seeds; beside each "
    "figure its 95 % interval over examples, clean ones and outliers drawn apart."
)


def outlier_tables(results: Results, evidence: StudyEvidence) -> list[ComparisonTable]:
    """Return one table per set of outliers, one row per method, an interval with every figure."""
    rows = evidence.table.filter(polars.col("shift").is_in(results.outliers), kind="interval")
    cells = {(row["shift"], row["first"], row["figure"]): row for row in rows.to_dicts()}
    heading = ["Method", *(column.heading for column in OUTLIER_COLUMNS)]
    return [
        ComparisonTable(
            name,
            "",
            heading,
            [
                [series, *(_cell(cells.get((name, series, one.name))) for one in OUTLIER_COLUMNS)]
                for series in results.series
            ],
        )
        for name in results.outliers
    ]


def _cell(row: dict[str, float] | None) -> str:
    if row is None:
        return NOT_KNOWN
    return f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def outlier_figures(results: Results) -> list[Figure]:
    """Return the figures; a study without outliers has none."""
    if not results.outliers:
        return []
    return [histogram_figure(results), class_figure(results)]


def histogram_figure(results: Results) -> Figure:
    """Confidences of outliers beside those of the clean data, one panel per method."""
    sets = [CLEAN, *results.outliers]
    scale = altair.Scale(domain=sets, range=[INK, *cycled(COLOURS, len(results.outliers))])
    base = altair.Chart().encode(
        x=altair.X("from:Q", title="confidence", scale=altair.Scale(domain=[0, 1])),
        y=altair.Y("share:Q", title="share of examples", axis=altair.Axis(format=".0%")),
        color=altair.Color("set:N", title=None, sort=sets, scale=scale),
    )
    steps = base.mark_line(interpolate="step-after", strokeWidth=1.8)
    hover = base.mark_circle(size=90, opacity=0).encode(tooltip=_cell_tooltip())
    panel = layered([steps, hover], confidence_shares(results))
    caption = (
        "Confidences of the outliers beside those of the clean test examples, in cells of 0.05, "
        "seeds pooled. The further left the outliers, the better."
    )
    chart = grid(panel, "series", dict.fromkeys(results.series, False))
    width = 45 + 7 * max(len(name) for name in sets)
    return Figure("confidence-of-outliers", caption, chart, width)


def class_figure(results: Results) -> Figure:
    """Mean confidence of outliers by the class they were taken for, one panel per set."""
    table = confidence_of_classes(results)
    even = altair.Chart().transform_filter("datum.first").mark_rule(strokeDash=[4, 3], opacity=0.5)
    panel = layered([even.encode(y="even:Q"), _class_dots(results)], table)
    caption = (
        "Mean confidence of outliers by the class that they were taken for, seeds pooled. The "
        "dashed line is 1 over the number of classes: a model that does not know should be there."
    )
    chart = grid(panel, "set", dict.fromkeys(results.outliers, False))
    return Figure("confidence-by-predicted-class", caption, chart, legend_width(results))


def _class_dots(results: Results) -> altair.Chart:
    series = list(results.series)
    padded, share = altair.Scale(padding=6), altair.Scale(domain=[0, 1])
    percent = altair.Axis(format=".0%")
    shape = altair.Scale(domain=series, range=cycled(SHAPES, len(series)))
    marks = altair.Chart().mark_point(filled=True, size=40, opacity=0.9)
    dots: altair.Chart = marks.encode(
        x=altair.X("class:Q", title="predicted class", axis=whole_numbers(), scale=padded),
        y=altair.Y("confidence:Q", title="mean confidence", scale=share, axis=percent),
        color=colour(results, "circle"),
        shape=altair.Shape("series:N", title=None, scale=shape),
        tooltip=_class_tooltip(),
    )
    return dots


def confidence_shares(results: Results) -> polars.DataFrame:
    """Return series, set, where a cell of confidence begins, and the share of examples in it."""
    cell = bin_expression(polars.col("confidence"), OUTLIER_CELLS).alias("cell")
    counts = _counted(results, [CLEAN, *results.outliers], cell)
    cells = polars.DataFrame(
        {"cell": range(OUTLIER_CELLS + 1)}
    )  # a step ends where the next begins
    keys = counts.select("series", "set").unique(maintain_order=True)
    whole = keys.join(cells, how="cross").join(counts, on=["series", "set", "cell"], how="left")
    share = polars.col("examples").fill_null(0) / polars.col("examples").sum().over("series", "set")
    last = polars.col("cell") == OUTLIER_CELLS
    shares = whole.with_columns(share.alias("share")).with_columns(
        polars.when(last)
        .then(polars.col("share").shift(1).over("series", "set"))
        .otherwise(polars.col("share"))
        .alias("share")
    )
    return shares.select(
        "series", "set", (polars.col("cell") / OUTLIER_CELLS).alias("from"), "share"
    )


def confidence_of_classes(results: Results) -> polars.DataFrame:
    """Return series, set, predicted class, its mean confidence and examples, and 1 / C."""
    counts = _counted(results, list(results.outliers), polars.col("prediction").alias("class"))
    first = polars.int_range(polars.len()).over("set") == 0
    return counts.with_columns(
        (polars.col("sum") / polars.col("examples")).alias("confidence"),
        polars.lit(1 / class_count(results)).alias("even"),
        first.alias("first"),
    ).sort("class", maintain_order=True)


def _counted(results: Results, sets: list[str], by: polars.Expr) -> polars.DataFrame:
    """Return examples and summed confidence of each set by something, pooled over seeds."""
    parts = polars.concat([_counted_run(run, sets, by) for run in results.runs])
    keys = ["series", "set", by.meta.output_name()]
    return parts.group_by(keys, maintain_order=True).agg(polars.col("examples", "sum").sum())


def _counted_run(run: StoredRun, sets: list[str], by: polars.Expr) -> polars.DataFrame:
    shift = polars.col("shift").cast(polars.String)
    wanted = open_scores(run).filter(
        shift.is_in(sets), (polars.col("level") == OUTLIER_LEVEL) | (shift == CLEAN)
    )
    sums = wanted.group_by(shift.alias("set"), by, maintain_order=True).agg(
        polars.len().cast(polars.Int64).alias("examples"),
        polars.col("confidence").sum().alias("sum"),
    )
    with explaining_read_errors(run.scores_file):
        return sums.select(polars.lit(run.series).alias("series"), polars.all()).collect()


def _cell_tooltip() -> list[altair.Tooltip]:
    return [
        altair.Tooltip("series:N", title="method"),
        altair.Tooltip("set:N"),
        altair.Tooltip("from:Q", title="confidence above", format=".2f"),
        altair.Tooltip("share:Q", title="share of examples", format=".1%"),
    ]


def _class_tooltip() -> list[altair.Tooltip]:
    return [
        altair.Tooltip("series:N", title="method"),
        altair.Tooltip("set:N"),
        altair.Tooltip("class:Q", title="predicted class"),
        altair.Tooltip("confidence:Q", title="mean confidence", format=".3f"),
        altair.Tooltip("examples:Q", format=",d"),
    ]
