"""The rows that a chart draws, as its specification carries them."""

from typing import Any

import altair


def chart_rows(chart: altair.LayerChart | altair.FacetChart) -> list[dict[str, Any]]:
    """Return the rows of a chart over one table."""
    (rows,) = chart.to_dict()["datasets"].values()
    return list(rows)
