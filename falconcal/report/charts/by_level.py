"""The figures, as chart objects: the same ones for the page and for the files.

Every chart is small multiples of one panel. Data are aggregates, written into the specification.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair
import polars

from falconcal.drawing.layers import layered
from falconcal.drawing.theme import SHAPES, cycled
from falconcal.metrics import METRICS, Metric
from falconcal.report.charts.chart_data import (
    MEAN_OF_SHIFTS,
    history_curves,
    level_curves,
    pooled_curves,
)
from falconcal.report.charts.figure import (
    CHOSEN_ON,
    Figure,
    colour,
    grid,
    legend_width,
    lines,
    marked,
    tint,
    tooltip,
    whole_numbers,
)
from falconcal.report.results import Results

LEVELS_NOTE = "Level 0 is the clean data."
SEEDS_NOTE = "Lines are means over seeds, bands the range of the seeds."
LOGARITHMIC_TICKS = [0, 0.3, 1, 3, 10, 30, 100, 300, 1000]
PANEL_GROUPS = ["Mean", "Tested shifts", CHOSEN_ON.capitalize()]


@dataclass(frozen=True)
class Quantity:
    """A metric as the figures by level show it."""

    name: str
    caption: str
    whole_range: bool = False  # whether the axis spans all values that there are
    logarithmic: bool = False  # far from 0

    @property
    def metric(self) -> Metric:
        """The record, which has the words and the format."""
        return METRICS[self.name]


ECE = Quantity("ece", "ECE at each level of each shift. Lower is better.")
ACCURACY = Quantity(
    "accuracy", "Accuracy at each level of each shift: how hard the shift is.", whole_range=True
)
CONFIDENCE = Quantity(
    "confidence",
    "Mean confidence at each level of each shift: it should fall as accuracy falls.",
    whole_range=True,
)
ENTROPY = Quantity(
    "entropy",
    "Mean entropy of the predicted distribution: it should rise as a shift takes information away.",
)
NLL = Quantity(
    "nll",
    "Mean negative log-likelihood of the true class: low where a model is right and sure, high "
    "where it is wrong and sure. Lower is better. The scale is logarithmic above 1.",
    logarithmic=True,
)


def pooled_figure(results: Results) -> Figure:
    """Micro-averaged ECE of each shift, methods side by side."""
    known = pooled_curves(results, "micro_ece").drop_nulls("mean")
    table = known.with_columns(_group(results).alias("group"))
    panel = layered(_spread_and_dots(results), table)
    header = altair.Header(title=None, labelOrient="top", labelAnchor="start")
    row = altair.Row("group:N", sort=PANEL_GROUPS, header=header)
    chart = panel.properties(width=560, height=altair.Step(max(4, 15 - len(results.series)))).facet(
        row=row, spacing=10
    )
    caption = (
        "Micro-averaged ECE: all levels of a shift pooled, the clean one included. Each mark is "
        "the mean over seeds, each bar the range of the seeds. Lower is better."
    )
    return Figure(
        "micro-ece-by-shift",
        caption,
        chart.resolve_scale(y="independent"),
        legend_width(results),
        by_method=True,
    )


def level_figure(results: Results, quantity: Quantity) -> Figure:
    """A metric by level, one panel per shift, one line per series."""
    return Figure(
        f"{quantity.name}-by-level",
        f"{quantity.caption} {LEVELS_NOTE} {SEEDS_NOTE}",
        level_chart(results, quantity, results.series),
        legend_width(results),
        by_method=True,
    )


def level_chart(results: Results, quantity: Quantity, shown: Sequence[str]) -> altair.FacetChart:
    """Return the chart of a metric by level, of the series that are shown."""
    curves, words = level_curves(results, quantity.name), quantity.metric.axis_title
    table = marked(results, curves.filter(polars.col("series").is_in(shown)))
    drawn = lines(
        results,
        altair.X("level:Q", title="level", axis=whole_numbers()),
        altair.Y("mean:Q", scale=_scale(quantity), axis=_axis(quantity)),
        words,
        tooltip(["series", "shift", "level"], words, quantity.metric.style),
        shown,
    )
    panel = layered([tint(), *drawn], table)
    return grid(panel, "shift", _chosen_on(results, results.shifts))


def history_figures(results: Results) -> list[Figure]:
    """Terms of the training objectives by epoch, one panel per term, if anything was trained."""
    table = history_curves(results)
    return [] if table.is_empty() else [_history_figure(results, table)]


def _history_figure(results: Results, table: polars.DataFrame) -> Figure:
    drawn = lines(
        results,
        altair.X("epoch:Q", title="epoch", axis=whole_numbers(), scale=altair.Scale(zero=False)),
        altair.Y("mean:Q", axis=altair.Axis(format="~g", tickCount=4)),
        "mean over the epoch",
        tooltip(["series", "term", "epoch"], "value", ".4~g"),
    )
    terms = dict.fromkeys(table["term"], False)
    chart = grid(layered(drawn, table), "term", terms)
    caption = (
        "Terms of the training objectives, weighted as they were minimised; each panel has a scale "
        f"of its own. {SEEDS_NOTE}"
    )
    return Figure(
        "training-history",
        caption,
        chart.resolve_scale(y="independent"),
        legend_width(results),
        by_method=True,
    )


def file_names(labels: Iterable[str]) -> dict[str, str]:
    """Return each label as a part of a file name, no two alike."""
    names: dict[str, str] = {}
    for label in labels:
        name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "series"
        while name in names.values():
            name += "-again"
        names[label] = name
    return names


def _scale(quantity: Quantity) -> altair.Scale:
    if quantity.logarithmic:  # one method that rules a class out would hide all others
        return altair.Scale(type="symlog", constant=1, zero=True)
    if quantity.whole_range:
        return altair.Scale(domain=quantity.metric.limits)
    return altair.Scale(zero=True)


def _axis(quantity: Quantity) -> altair.Axis:
    if quantity.logarithmic:
        ticks = LOGARITHMIC_TICKS  # with a count, or Vega takes every second one away
        return altair.Axis(values=ticks, tickCount=len(ticks), labelExpr="datum.value")
    style = ".0%" if quantity.metric.style.endswith("%") else "~g"
    return altair.Axis(format=style, tickCount=4)


def _chosen_on(results: Results, shifts: Iterable[str]) -> dict[str, bool]:
    return {shift: shift in results.selection_shifts for shift in shifts}


def _group(results: Results) -> polars.Expr:
    shift = polars.col("shift")
    tested = (
        polars.when(shift == MEAN_OF_SHIFTS)
        .then(polars.lit(PANEL_GROUPS[0]))
        .otherwise(polars.lit(PANEL_GROUPS[1]))
    )
    chosen_on = shift.is_in(results.selection_shifts)
    return polars.when(chosen_on).then(polars.lit(PANEL_GROUPS[2])).otherwise(tested)


def _spread_and_dots(results: Results) -> list[altair.Chart]:
    series = list(results.series)
    title = "micro-averaged ECE"
    shape = altair.Scale(domain=series, range=cycled(SHAPES, len(series)))
    base = altair.Chart().encode(
        y=altair.Y("shift:N", sort=[MEAN_OF_SHIFTS, *results.shifts], title=None),
        yOffset=altair.YOffset("series:N", scale=altair.Scale(domain=series)),
        color=colour(results, "circle"),
    )
    spread = base.mark_rule(strokeWidth=2, opacity=0.5).encode(
        x=altair.X("low:Q", title=title, axis=altair.Axis(tickCount=7)), x2="high:Q"
    )
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=altair.X("mean:Q", title=title, scale=altair.Scale(zero=True)),
        shape=altair.Shape("series:N", title=None, scale=shape),
        tooltip=tooltip(["series", "shift"], "micro ECE"),
    )
    return [spread, dots]
