"""What the figures are made of: panels in a grid, lines with bands, marks on chosen shifts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair
import polars

from falconcal.drawing.layers import HOVER_SIZE
from falconcal.drawing.theme import COLOURS, CONFIG, DASHES, INK, cycled
from falconcal.report.charts.engine import draw
from falconcal.report.results import Results

CHOSEN_ON = "used to choose settings"
PANEL_WIDTH, PANEL_HEIGHT, PANELS_PER_ROW = 170, 120, 4
ROW_HEIGHT = 18  # of one method, where a panel has one row per method
FILE_WIDTH = PANELS_PER_ROW * (PANEL_WIDTH + 30)  # about, with the room that axes take
NAMED_ROWS = 4  # cells of a panel whose rows have names: alone in its row on a narrow page


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart with its file name, its words, and what a page must know to resize it."""

    name: str
    caption: str
    chart: altair.FacetChart
    legend_width: int  # of one entry, in pixels
    square: bool = False  # panels stay so
    cells: int = 0  # across a panel, if numbers stand in them and need room
    by_method: bool = False  # whether its legend names all methods, as the page's bar does

    def specification(self) -> dict[str, Any]:
        """Return the Vega-Lite specification in the house style, ready for JSON."""
        return self._specification

    @cached_property
    def _specification(self) -> dict[str, Any]:
        # validating takes longer than drawing; the tests do it for every figure
        specification: dict[str, Any] = self.chart.to_dict(validate=False)
        specification["config"] = CONFIG
        specification["usermeta"] = {
            "legendWidth": self.legend_width,
            "square": self.square,
            "cells": self.cells,
            "byMethod": self.by_method,
        }
        return specification

    def on_white(self) -> dict[str, Any]:
        """Return the specification of the chart as it stands in a file of its own."""
        # a page knows its width, a file has that of its panels
        columns = max(1, FILE_WIDTH // self.legend_width)
        config = {**CONFIG, "legend": {**CONFIG["legend"], "columns": columns}}
        return {**self._specification, "background": "white", "config": config}


def drawn(figures: Iterable[Figure], formats: Sequence[str] = ("svg",)) -> dict[str, bytes]:
    """Return the figures in each of the formats, by file name, all drawn at once."""
    figures = list(figures)
    files = draw([figure.on_white() for figure in figures], formats)
    return {
        f"{figure.name}.{ending}": content
        for figure, one in zip(figures, files, strict=True)
        for ending, content in one.items()
    }


def grid(
    panel: altair.LayerChart,
    field: str,
    order: dict[str, bool],
    height: int | altair.Step = PANEL_HEIGHT,
) -> altair.FacetChart:
    """Return one panel per value of a field, in order; True marks one used to choose settings."""
    header = altair.Header(title=None)
    if any(order.values()):
        header = altair.Header(title=None, labelExpr=_noted_label(order))
    facet = altair.Facet(f"{field}:N", sort=list(order), header=header)
    sized = panel.properties(width=PANEL_WIDTH, height=height)
    facets = sized.facet(facet, columns=min(PANELS_PER_ROW, len(order)), spacing=16)
    # a shared axis would hang under the holes of the last row
    chart: altair.FacetChart = facets.resolve_axis(x="independent")
    return chart


def colour(results: Results, symbol: str, shown: Sequence[str] = ()) -> altair.Color:
    """Return the colours of the series, the same in every figure, and what the legend draws."""
    return altair.Color(
        "series:N",
        title=None,
        legend=altair.Legend(symbolType=symbol, values=list(shown or results.series)),
        scale=altair.Scale(domain=list(results.series), range=cycled(COLOURS, len(results.series))),
    )


def lines(
    results: Results,
    x: altair.X,
    y: altair.Y,
    title: str,
    tooltip: list[altair.Tooltip],
    shown: Sequence[str] = (),
) -> list[altair.Chart]:
    """Return a band from the lowest to the highest seed and a line of means, for every series."""
    shown = shown or results.series
    base = altair.Chart().encode(x=x, color=colour(results, "stroke", shown))
    # many bands over each other would hide the lines
    opacity = 0.18 if len(shown) <= 4 else 0.08
    band = base.mark_area(opacity=opacity).encode(y=altair.Y("low:Q", title=title), y2="high:Q")
    line = base.mark_line(strokeWidth=1.8).encode(y=y.title(title), strokeDash=dash(results, shown))
    hover = base.mark_circle(size=HOVER_SIZE, opacity=0).encode(y=y, tooltip=tooltip)
    return [band, line, hover]


def marked(results: Results, table: polars.DataFrame) -> polars.DataFrame:
    """Mark the first row of each shift, and whether the shift served to choose settings."""
    first = polars.int_range(polars.len()).over("shift") == 0
    chosen_on = polars.col("shift").is_in(results.selection_shifts)
    return table.with_columns(first.alias("first"), (first & chosen_on).alias("tinted"))


def tint() -> altair.Chart:
    """Return a grey ground for the panels of shifts that served to choose settings."""
    rows = altair.Chart().transform_filter("datum.tinted")
    ground: altair.Chart = rows.mark_rect(color=INK, opacity=0.07, aria=False).encode(
        x=altair.value(0),
        x2=altair.value("width"),
        y=altair.value(0),
        y2=altair.value("height"),
    )
    return ground


def diagonal() -> altair.Chart:
    """Return the line of a square panel on which confidence is accuracy."""
    first = altair.Chart().transform_filter("datum.first")
    line: altair.Chart = first.mark_rule(strokeDash=[4, 3], opacity=0.5, aria=False).encode(
        x=altair.value(0), y=altair.value("height"), x2=altair.value("width"), y2=altair.value(0)
    )
    return line


def tooltip(keys: list[str], title: str, style: str = ".3f") -> list[altair.Tooltip]:
    """Return the tooltip of a mark: its keys, the mean, and the range of the seeds."""
    return [
        *(altair.Tooltip(f"{key}:N", title="method" if key == "series" else key) for key in keys),
        altair.Tooltip("mean:Q", title=title, format=style),
        altair.Tooltip("low:Q", title="lowest seed", format=style),
        altair.Tooltip("high:Q", title="highest seed", format=style),
    ]


def legend_width(results: Results) -> int:
    """Return about how wide the longest entry of the series' legend is, symbol included."""
    return 45 + 7 * max(len(series) for series in results.series)


def whole_numbers() -> altair.Axis:
    # a short axis gets ticks between whole numbers all the same: those stay without a label
    whole = "datum.value % 1 === 0 ? format(datum.value, 'd') : ''"
    return altair.Axis(labelExpr=whole, tickMinStep=1, tickCount=5, grid=False)


def _noted_label(order: dict[str, bool]) -> str:
    """Return the expression that puts a second line under the names of marked panels."""
    noted = json.dumps([value for value, chosen_on in order.items() if chosen_on])
    return f"indexof({noted}, datum.label) < 0 ? datum.label : [datum.label, '{CHOSEN_ON}']"


def dash(results: Results, shown: Sequence[str]) -> altair.StrokeDash:
    """Return the dashes of the series, which say the same as the colours."""
    series = list(results.series)
    scale = altair.Scale(domain=series, range=cycled(DASHES, len(series)))
    legend = altair.Legend(symbolType="stroke", symbolSize=400, values=list(shown))
    return altair.StrokeDash("series:N", title=None, scale=scale, legend=legend)
