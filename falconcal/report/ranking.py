"""Which method comes first: the order of the page, its groups, and the shift that tells most."""

import polars

from falconcal.report.charts.chart_data import MEAN_OF_SHIFTS, level_curves, pooled_curves
from falconcal.report.results import Results

MANY = 8  # methods beyond which a page shows a chosen few first
CHOSEN_FIRST = 3  # best methods among these few
TRAINED, RECALIBRATED = "Trained", "Recalibrated, nothing trained again"


def ranked_series(results: Results) -> list[str]:
    """Return the methods from the lowest mean micro ECE to the highest; equal ones stay."""
    errors = shift_errors(results, MEAN_OF_SHIFTS)
    return sorted(results.series, key=lambda series: errors.get(series, float("inf")))


def shift_errors(results: Results, shift: str) -> dict[str, float]:
    """Return the micro ECE of each method under a shift, its mean over seeds, where known."""
    rows = pooled_curves(results, "micro_ece").filter(shift=shift).drop_nulls("mean")
    return dict(rows.select("series", "mean").rows())


def worst_shift(results: Results, series: str) -> tuple[str, float] | None:
    """Return the tested shift under which a method's micro ECE is highest, and that error."""
    found = pooled_curves(results, "micro_ece").filter(
        polars.col("shift").is_in(results.tested_shifts), series=series
    )
    known = found.drop_nulls("mean").sort("mean", descending=True, maintain_order=True)
    return None if known.is_empty() else (known["shift"][0], known["mean"][0])


def telling_level(results: Results) -> tuple[str, int]:
    """Return the tested shift, and its level, at which the methods' errors are furthest apart.

    With one method it is where its error is highest.
    """
    pooled = pooled_curves(results, "micro_ece").filter(
        polars.col("shift").is_in(results.tested_shifts)
    )
    shift = str(_most(pooled, "shift", results.tested_shifts[0]))
    levels = level_curves(results, "ece").filter(polars.col("level") > 0, shift=shift)
    return shift, int(_most(levels, "level", 0))


def first_shown(results: Results) -> list[str]:
    """Return the few methods that stand out at first where there are many; else none."""
    if len(results.series) <= MANY:
        return []
    roles = (results.roles.plain, results.roles.reference)
    few = [*ranked_series(results)[:CHOSEN_FIRST], *map(results.series_of, roles)]
    return list(dict.fromkeys(series for series in few if series is not None))


def group_of(results: Results, series: str) -> str:
    """Return whether a method was trained, or recalibrated the model of another run."""
    runs = [run for run in results.runs if run.series == series]
    return RECALIBRATED if any(run.record.get("base") for run in runs) else TRAINED


def _most(curves: polars.DataFrame, key: str, otherwise: str | int) -> str | int:
    """Return the first key whose means are furthest apart, or highest where there is one each."""
    spread = curves.drop_nulls("mean").group_by(key, maintain_order=True)
    mean = polars.col("mean")
    found = spread.agg(mean.std().alias("apart"), mean.max().alias("highest"))
    by = "highest" if found["apart"].is_null().all() else "apart"
    ordered = found.sort(by, descending=True, nulls_last=True, maintain_order=True)
    first: str | int = otherwise if ordered.is_empty() else ordered[key][0]
    return first
