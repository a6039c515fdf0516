"""The headline chart: confidence against accuracy as the shift grows, one path per method."""

import altair
import polars

from falconcal.drawing.layers import HOVER_SIZE, layered
from falconcal.report.charts.figure import Figure, colour, dash, diagonal, grid, legend_width
from falconcal.report.results import Results

LOWEST = 0.9  # the axes begin here at the latest
STEP = 0.1
SIDE = 340
HEADLINE_CAPTION = (
    "From the clean data, the ring, to the strongest level, the large dot: means over the tested "
    "shifts and the seeds. Trustworthy is the dashed line, where confidence falls with accuracy; "
    "above it a model is too sure, below it not sure enough."
)


def headline_figure(results: Results) -> Figure:
    """Return the chart; its axes have the same scale, so the diagonal is one."""
    table = paths(results)
    shown = table.with_columns(
        (polars.int_range(polars.len()) == 0).alias("first"), polars.lit("").alias("all")
    )
    chart = grid(layered(_layers(results, _lowest(table)), shown), "all", {"": False})
    chart.facet.header = altair.Header(title=None, labels=False)
    chart.spec.width = chart.spec.height = SIDE
    return Figure(
        "confidence-against-accuracy",
        HEADLINE_CAPTION,
        chart,
        legend_width(results),
        square=True,
        by_method=True,
    )


def paths(results: Results) -> polars.DataFrame:
    """Return series, level, accuracy, confidence and end: clean, between or strongest.

    A level is the mean over the tested shifts that have it, then over the seeds.
    """
    rows = results.rows.filter(
        polars.col("shift").is_in(results.tested_shifts),
        polars.col("level").is_not_null(),
        polars.col("metric").is_in(["accuracy", "confidence"]),
    )
    keys = ["series", "level", "metric"]
    means = rows.group_by(keys, maintain_order=True).agg(polars.col("value").mean())
    table = means.pivot("metric", index=["series", "level"], values="value")
    level, last = polars.col("level"), polars.col("level").max().over("series")
    end = polars.when(level == 0).then(polars.lit("clean")).when(level == last)
    named = end.then(polars.lit("strongest")).otherwise(polars.lit("between"))
    known = table.with_columns(named.alias("end")).drop_nulls()
    return known.sort("level", maintain_order=True)


def _lowest(table: polars.DataFrame) -> float:
    """Return where both axes begin: a tenth at or below every value."""
    lowest = min(float(table[name].min() or 0) for name in ("accuracy", "confidence"))  # type: ignore[arg-type]
    return round(max(0.0, min(LOWEST, lowest // STEP * STEP)), 1)


def _layers(results: Results, lowest: float) -> list[altair.Chart]:
    scale = altair.Scale(domain=[lowest, 1], nice=False, zero=False)
    axis = altair.Axis(format=".0%", tickCount=5)
    base = altair.Chart().encode(
        x=altair.X("accuracy:Q", title="accuracy", scale=scale, axis=axis),
        y=altair.Y("confidence:Q", title="mean confidence", scale=scale, axis=axis),
        color=colour(results, "stroke"),
    )
    path = base.mark_line(strokeWidth=1.8).encode(
        order="level:Q", strokeDash=dash(results, results.series)
    )
    strongest = base.transform_filter("datum.end == 'strongest'")
    clean = base.transform_filter("datum.end == 'clean'")
    hover = base.mark_circle(size=HOVER_SIZE, opacity=0).encode(tooltip=_tooltip())
    return [
        diagonal(),
        path,
        clean.mark_point(size=50, filled=False, strokeWidth=1.8),
        strongest.mark_circle(size=90, opacity=1),
        hover,
    ]


def _tooltip() -> list[altair.Tooltip]:
    return [
        altair.Tooltip("series:N", title="method"),
        altair.Tooltip("level:Q"),
        altair.Tooltip("accuracy:Q", format=".1%"),
        altair.Tooltip("confidence:Q", title="mean confidence", format=".1%"),
    ]
