"""The reliability diagram: accuracy against confidence, bin by bin."""

import altair
import polars

from falconcal.drawing.layers import HOVER_SIZE, in_house_style, layered
from falconcal.drawing.theme import COLOURS

MODEL_COLOUR = COLOURS[0]
MOST_COUNTED = 12  # bins over which counts can be written without running into each other
DIAGRAM_SIDE = 320


def reliability_chart(table: polars.DataFrame, title: str = "") -> altair.LayerChart:
    """Return the diagram by itself, as a notebook shows it."""
    panel = reliability_panel(table, counted=len(table) <= MOST_COUNTED)
    sized = panel.properties(width=DIAGRAM_SIDE, height=DIAGRAM_SIDE, title=title)
    return in_house_style(sized)


def reliability_panel(table: polars.DataFrame, *, counted: bool) -> altair.LayerChart:
    """Return the diagram of bins, one row each, that ``metrics.reliability_bins`` made."""
    rows = table.with_columns(
        ((polars.col("from") + polars.col("to")) / 2).alias("middle"),
        (polars.int_range(polars.len()) == 0).alias("first"),
    )
    layers = [_diagonal(), *_bin_marks()]
    return layered([*layers, _counts()] if counted else layers, rows)


def _diagonal() -> altair.Chart:
    first = altair.Chart().transform_filter("datum.first")
    line: altair.Chart = first.mark_rule(strokeDash=[4, 3], opacity=0.5, aria=False).encode(
        x=altair.XDatum(0), y=altair.YDatum(0), x2=altair.X2Datum(1), y2=altair.Y2Datum(1)
    )
    return line


def _bin_marks() -> list[altair.Chart]:
    axis = altair.Axis(format=".1f", values=[0, 0.2, 0.4, 0.6, 0.8, 1])
    across = altair.Scale(domain=[-0.04, 1.04], nice=False)
    upwards = altair.Scale(domain=[-0.04, 1.1], nice=False)  # counts stand above 1
    base = altair.Chart().encode(
        x=altair.X("confidence:Q", title="confidence", scale=across, axis=axis)
    )
    accuracy = altair.Y("accuracy:Q", title="accuracy", scale=upwards, axis=axis)
    gaps = base.mark_rule(color=MODEL_COLOUR, strokeWidth=5, opacity=0.3).encode(
        y=accuracy, y2="confidence:Q"
    )
    bounds = base.mark_rule(color=MODEL_COLOUR, strokeWidth=1.2).encode(
        y=altair.Y("low:Q", title="accuracy"), y2="high:Q"
    )
    line = base.mark_line(color=MODEL_COLOUR, strokeWidth=1.2, opacity=0.7).encode(y=accuracy)
    size = altair.Size("share:Q", scale=altair.Scale(domain=[0, 1], range=[14, 500]), legend=None)
    dots = base.mark_circle(color=MODEL_COLOUR, opacity=0.9).encode(y=accuracy, size=size)
    hover = base.mark_circle(size=4 * HOVER_SIZE, opacity=0).encode(
        y=accuracy, tooltip=_bin_words()
    )
    return [gaps, bounds, line, dots, hover]


def _bin_words() -> list[altair.Tooltip]:
    return [
        altair.Tooltip("from:Q", title="confidence above", format=".3~f"),
        altair.Tooltip("to:Q", title="up to", format=".3~f"),
        altair.Tooltip("counts:Q", title="examples", format=",d"),
        altair.Tooltip("confidence:Q", title="mean confidence", format=".3f"),
        altair.Tooltip("accuracy:Q", title="accuracy", format=".3f"),
        altair.Tooltip("low:Q", title="at least", format=".3f"),
        altair.Tooltip("high:Q", title="at most", format=".3f"),
    ]


def _counts() -> altair.Chart:
    # no more than four signs, such as 123k: ten of them fit over a diagram on a phone
    words = "datum.counts < 1000 ? format(datum.counts, 'd') : format(datum.counts, '.2~s')"
    named = altair.Chart().transform_calculate(counted=words)
    text: altair.Chart = named.mark_text(fontSize=10, opacity=0.75).encode(
        x="middle:Q", y=altair.YDatum(1.06), text="counted:N"
    )
    return text
