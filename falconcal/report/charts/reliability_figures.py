"""All methods in one reliability diagram per shift: clean data first, then each shift pooled."""

import altair
import polars

from falconcal.drawing.layers import layered
from falconcal.evaluation.under_shift import CLEAN
from falconcal.metrics import BINS
from falconcal.report.charts.chart_data import reliability_bins
from falconcal.report.charts.figure import (
    PANEL_WIDTH,
    Figure,
    colour,
    dash,
    diagonal,
    grid,
    legend_width,
    marked,
    tint,
)
from falconcal.report.results import Results

RELIABILITY_CAPTION = (
    f"Accuracy against confidence in {BINS} bins, seeds pooled; each shift holds all its levels. "
    "Below the dashed diagonal a model is too sure. The area of a dot is the bin's share."
)


def reliability_by_shift(results: Results) -> Figure:
    """Return one panel per shift with the methods over each other."""
    bins = reliability_bins(results)
    shares = (polars.col("counts") / polars.col("counts").sum().over("series", "shift")).round(4)
    edges = polars.format("{} to {}", polars.col("bin") / BINS, (polars.col("bin") + 1) / BINS)
    table = marked(results, bins).with_columns(shares.alias("share"), edges.alias("range"))
    panel = layered([tint(), *_diagram(results)], table.drop("bin"))
    there = set(table["shift"])
    order = {
        shift: shift in results.selection_shifts
        for shift in (CLEAN, *results.shifts)
        if shift in there
    }
    chart = grid(panel, "shift", order, height=PANEL_WIDTH)
    return Figure(
        "reliability-by-shift",
        RELIABILITY_CAPTION,
        chart,
        legend_width(results),
        square=True,
        by_method=True,
    )


def _diagram(results: Results) -> list[altair.Chart]:
    unit, axis = altair.Scale(domain=[-0.04, 1.04]), altair.Axis(format=".1f", values=[0, 0.5, 1])
    base = altair.Chart().encode(
        x=altair.X("confidence:Q", title="confidence", scale=unit, axis=axis),
        y=altair.Y("accuracy:Q", title="accuracy", scale=unit, axis=axis),
        color=colour(results, "stroke"),
    )
    line = base.mark_line(strokeWidth=1.5).encode(strokeDash=dash(results, results.series))
    size = altair.Size("share:Q", scale=altair.Scale(domain=[0, 1], range=[4, 400]), legend=None)
    dots = base.mark_circle(opacity=0.85).encode(size=size, tooltip=_tooltip())
    return [diagonal(), line, dots]


def _tooltip() -> list[altair.Tooltip]:
    return [
        altair.Tooltip("series:N", title="method"),
        altair.Tooltip("shift:N"),
        altair.Tooltip("range:N", title="confidences"),
        altair.Tooltip("counts:Q", title="examples", format=",d"),
        altair.Tooltip("share:Q", title="share", format=".1%"),
        altair.Tooltip("confidence:Q", title="mean confidence", format=".3f"),
        altair.Tooltip("accuracy:Q", title="accuracy", format=".3f"),
    ]
