"""Layers of marks over one small table, which the chart carries with it."""

from typing import Any, TypeVar

import altair
import polars

from falconcal.drawing.theme import CONFIG, FONT

HOVER_SIZE = 90  # of the unseen marks that answer the pointer
CHART_DIGITS = 6  # enough for any figure, and a page half the size
ChartT = TypeVar("ChartT", altair.LayerChart, altair.FacetChart)
NOTEBOOK_INK = "#444"  # a notebook's charts do not know the colour of its text


def layered(layers: list[altair.Chart], table: polars.DataFrame) -> altair.LayerChart:
    """Return the layers of a panel over one small table, which the specification carries."""
    numbers = polars.selectors.float()
    rounded = table.with_columns(numbers.fill_nan(None).round(CHART_DIGITS))
    # a tuple, because Altair copies lists again and again
    return altair.LayerChart(data={"values": tuple(rounded.to_dicts())}, layer=layers)


def in_house_style(chart: ChartT) -> ChartT:
    """Return a chart for a notebook: the fonts and sizes of the reports, on white."""
    parts: dict[str, Any] = {
        name: dict(CONFIG[name]) for name in ("axis", "header", "legend", "view")
    }
    for part in parts.values():
        part.update({key: NOTEBOOK_INK for key, value in part.items() if value == "currentColor"})
    styled: ChartT = chart.configure(
        font=FONT,
        background="white",
        **parts,
        text={"color": NOTEBOOK_INK},
        rule={"color": NOTEBOOK_INK},
    )
    return styled
