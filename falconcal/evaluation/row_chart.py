"""Rows of an evaluation as a chart: a metric by level, one panel per shift."""

from typing import TYPE_CHECKING, Any

import narwhals
import polars

from falconcal.drawing.layers import HOVER_SIZE, in_house_style, layered
from falconcal.drawing.theme import COLOURS
from falconcal.errors import UserError, described, unknown_name_error
from falconcal.evaluation.under_shift import CLEAN
from falconcal.metrics import METRICS

if TYPE_CHECKING:
    import altair

NEEDED = ("shift", "level", "metric", "value")
PANEL_SIDE, ROW_PANELS = 180, 3


def plot_rows(rows: Any, metric: str = "ece", by: str | None = None) -> "altair.FacetChart":
    """Draw a metric by level, one panel per shift, from the rows of ``falconcal.evaluate``.

    Args:
        rows: A polars or pandas table with the columns shift, level, metric and value.
        metric: The metric to draw, a name of ``METRICS`` that the rows have.
        by: A column that tells lines apart, such as one of methods that was added to the rows.

    Returns:
        An Altair chart, which a notebook shows and ``save`` writes.

    Raises:
        UsageError: The rows have no such metric.
        UserError: ``rows`` is no such table.

    Example:
        >>> import polars
        >>> import falconcal
        >>> rows = polars.DataFrame(
        ...     {"shift": ["a", "a"], "level": [0, 1], "metric": ["ece"] * 2, "value": [0.1, 0.2]}
        ... )
        >>> falconcal.plot_rows(rows).to_dict()["columns"]
        1
    """
    import altair

    table = _chosen(rows, metric, by)
    title = METRICS[metric].axis_title if metric in METRICS else metric
    base = altair.Chart().encode(
        x=altair.X("level:Q", title="level", axis=altair.Axis(tickMinStep=1)),
        y=altair.Y("value:Q", title=title),
        color=altair.Color("line:N", title=None, scale=altair.Scale(range=list(COLOURS)))
        if by is not None
        else altair.value(COLOURS[0]),
    )
    hints = [altair.Tooltip(name) for name in ("shift:N", "line:N", "level:Q", "value:Q")]
    layers = [base.mark_line(), base.mark_circle(size=HOVER_SIZE / 3).encode(tooltip=hints)]
    panel = layered(layers, table).properties(width=PANEL_SIDE, height=PANEL_SIDE * 0.75)
    shifts = table["shift"].unique(maintain_order=True).to_list()
    facet = altair.Facet("shift:N", sort=shifts, title=None)
    chart = panel.facet(facet, columns=min(ROW_PANELS, len(shifts)), spacing=16)
    # a shared axis would hang under the holes of the last row
    shown: altair.FacetChart = in_house_style(chart.resolve_axis(x="independent"))
    return shown


def _chosen(rows: Any, metric: str, by: str | None) -> polars.DataFrame:
    """Return the rows of a metric at all levels, each with the name of its line."""
    table = _as_polars(rows)
    missing = [name for name in (*NEEDED, *([by] if by else [])) if name not in table.columns]
    if missing:
        raise UserError(
            f"expected the columns {', '.join(NEEDED)}, as falconcal.evaluate returns them, got "
            f"none called {missing[0]!r}."
        )
    known = table["metric"].unique(maintain_order=True).to_list()
    if metric not in known:
        raise unknown_name_error("metric", metric, known)
    line = polars.col(by).cast(polars.String) if by is not None else polars.lit("")
    kept = table.filter(polars.col("metric") == metric, polars.col("level").is_not_null())
    shifted = kept.filter(polars.col("shift") != CLEAN)  # every shift has the clean level, too
    kept = shifted if len(shifted) else kept
    return kept.select("shift", "level", "value", line.alias("line"))


def _as_polars(rows: Any) -> polars.DataFrame:
    try:
        table: polars.DataFrame = narwhals.from_native(rows, eager_only=True).to_polars()
    except TypeError:
        raise UserError(
            f"expected a table of rows, as falconcal.evaluate returns it, got {described(rows)}."
        ) from None
    return table
