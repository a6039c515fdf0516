"""Every metric that a study's rows hold: on the clean data, and its mean under the tested shifts.

The metrics are those of the table ``METRICS``, so one that is added there is shown here.
"""

import polars

from falconcal.evaluation.under_shift import CLEAN
from falconcal.metrics import METRICS
from falconcal.report.results import Results
from falconcal.report.tables.headline_columns import NOT_KNOWN

METRICS_NOTE = (
    "Means over seeds: on the clean examples and, below, over the levels above 0 of each tested "
    "shift, then over the shifts."
)
Means = dict[tuple[str, str], float]  # by metric and series


def means_by_metric(results: Results) -> dict[str, list[tuple[str, str]]]:
    """Return by heading of a metric what each series has, on clean and on shifted data, as text."""
    tested = polars.col("shift").is_in(results.tested_shifts) & (polars.col("level") > 0)
    clean, shifted = (_means(results, which) for which in (polars.col("shift") == CLEAN, tested))
    known = [name for name in METRICS if any(metric == name for metric, _ in clean)]
    return {
        METRICS[name].heading: [
            (_text(clean, name, series), _text(shifted, name, series)) for series in results.series
        ]
        for name in known
    }


def _means(results: Results, which: polars.Expr) -> Means:
    """Return the mean of each metric of each series over the rows that are chosen."""
    rows = results.rows.filter(which, polars.col("value").is_not_nan())
    by_shift = rows.group_by("metric", "series", "shift").agg(polars.col("value").mean())
    table = by_shift.group_by("metric", "series").agg(polars.col("value").mean())
    return {(metric, series): value for metric, series, value in table.iter_rows()}


def _text(means: Means, name: str, series: str) -> str:
    value = means.get((name, series))
    return NOT_KNOWN if value is None else format(value, METRICS[name].style)
