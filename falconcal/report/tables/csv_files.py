"""The rows as text that any spreadsheet opens: all of them, and summarised for the page."""

import polars

from falconcal.evaluation.under_shift import CLEAN
from falconcal.report.results import Results

LEVEL_KEYS = ["series", "shift", "level"]
CSV_DIGITS = 6


def rows_csv(results: Results) -> str:
    """Return every row of every seed."""
    return results.rows.drop("series").write_csv()


def summary_csv(results: Results) -> str:
    """Return a line for each series, shift and level: how many seeds, and each metric's mean.

    The figures of a whole shift stand where the level is empty.
    """
    shifts = polars.DataFrame({"shift": [CLEAN, *results.shifts, *results.outliers]})
    metrics = results.rows["metric"].unique(maintain_order=True).to_list()
    value = polars.col("value").fill_nan(None)
    means = [
        value.filter(polars.col("metric") == metric).mean().round(CSV_DIGITS).alias(metric)
        for metric in metrics
    ]
    seeds = polars.col("seed").n_unique().alias("seeds")
    table = results.rows.group_by(LEVEL_KEYS, maintain_order=True).agg(seeds, *means)
    series = polars.DataFrame({"series": results.series})
    order = series.join(shifts, how="cross")
    return order.join(table, on=["series", "shift"], how="inner", maintain_order="left").write_csv()
