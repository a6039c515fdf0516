"""The small tables behind the figures: everything is reduced over seeds and examples here."""

import polars

from falconcal.evaluation.under_shift import CLEAN
from falconcal.metrics import BINS
from falconcal.report.confidence_cells import CONFIDENCE_CELLS, confidence_cells
from falconcal.report.results import Results

MEAN_OF_SHIFTS = "mean of tested shifts"


def level_curves(results: Results, metric: str) -> polars.DataFrame:
    """Return series, shift, level and the mean, low and high over seeds of a metric."""
    rows = results.rows.filter(
        polars.col("metric") == metric,
        polars.col("level").is_not_null(),
        polars.col("shift").is_in(results.shifts),
    )
    return over_seeds(rows, ["series", "shift", "level"])


def pooled_curves(results: Results, metric: str) -> polars.DataFrame:
    """Return series, shift and the mean, low and high over seeds of a pooled figure.

    The mean over the tested shifts, made for every seed alone, is a shift named ``MEAN_OF_SHIFTS``.
    """
    rows = results.rows.filter(
        polars.col("metric") == metric,
        polars.col("level").is_null(),
        polars.col("shift").is_in(results.shifts),
    )
    tested = rows.filter(polars.col("shift").is_in(results.tested_shifts))
    means = tested.group_by("series", "seed", maintain_order=True).agg(polars.col("value").mean())
    columns = ["series", "shift", "seed", "value"]
    means = means.with_columns(polars.lit(MEAN_OF_SHIFTS).alias("shift"))
    return over_seeds(
        polars.concat([means.select(columns), rows.select(columns)]), ["series", "shift"]
    )


def history_curves(results: Results) -> polars.DataFrame:
    """Return series, term, epoch and the mean, low and high over seeds of each training term."""
    parts = [
        run.history.select(polars.lit(run.series).alias("series"), "term", "epoch", "value")
        for run in results.runs
    ]
    return over_seeds(polars.concat(parts), ["series", "term", "epoch"])


def reliability_bins(results: Results) -> polars.DataFrame:
    """Return series, shift, bin, counts, confidence and accuracy, pooled over seeds.

    A shift holds all its levels, the clean one included, as the micro-averaged ECE does. Shifts
    with examples of no known class have no accuracy and are left out.
    """
    bins = (polars.col("cell") * BINS // CONFIDENCE_CELLS).alias("bin")
    sums = confidence_cells(results).with_columns(bins)
    known = sums.filter(~(polars.col("lowest_label") < 0).any().over("shift"))
    clean = known.filter(polars.col("shift") == CLEAN)
    shifts = [shift for shift in results.shifts if shift in known["shift"]]
    pooled = [clean, *(_with_clean(known, clean, shift) for shift in shifts)]
    return (
        polars.concat(pooled)
        .group_by("series", "shift", "bin", maintain_order=True)
        .agg(polars.col("counts", "confidence_sum", "hits").sum())
        .select(
            *["series", "shift", "bin", "counts"],
            (polars.col("confidence_sum") / polars.col("counts")).alias("confidence"),
            (polars.col("hits") / polars.col("counts")).alias("accuracy"),
        )
        .sort("bin", maintain_order=True)
    )


def over_seeds(rows: polars.DataFrame, keys: list[str]) -> polars.DataFrame:
    """Return the mean, low and high over seeds of the values of each key."""
    value = polars.col("value").fill_nan(None)  # JSON has no NaN; a figure leaves a gap
    means = rows.group_by(keys, maintain_order=True).agg(
        value.mean().alias("mean"), value.min().alias("low"), value.max().alias("high")
    )
    return means.sort(keys[-1], maintain_order=True)


def _with_clean(sums: polars.DataFrame, clean: polars.DataFrame, shift: str) -> polars.DataFrame:
    own = sums.filter(polars.col("shift") == shift)
    return polars.concat([own, clean.with_columns(polars.lit(shift).alias("shift"))])
