"""Conformal sets by level: how often they hold the true class, how large they are."""

import polars

from falconcal.evaluation.under_shift import CLEAN
from falconcal.io.output_folder import SETS_FILE
from falconcal.metrics import CONFORMAL_KINDS
from falconcal.report.results import Results
from falconcal.report.tables.comparison_tables import ComparisonTable

TITLES = {"lac": "LAC", "aps": "APS", "raps": "RAPS"}
CONFORMAL_NOTE = (
    "Sets of classes that are made to hold the true one with a probability of {promised:.0%}, from "
    "the validation data of each run (where that also chose an epoch or a calibration, coverage is "
    "a little lower). A cell has the coverage and the mean number of classes, means over the "
    "tested shifts and the seeds. The promise holds for data like the validation data alone."
)


def conformal_tables(results: Results) -> list[ComparisonTable]:
    """Return a table per kind of sets, one row per method; none where the study asks for none."""
    alpha = results.study.get("conformal")
    rows = _rows(results)
    if not isinstance(alpha, float) or rows.is_empty():
        return []
    return [_table(results, rows.filter(kind=kind), kind, 1 - alpha) for kind in CONFORMAL_KINDS]


def _rows(results: Results) -> polars.DataFrame:
    """Return what all runs measured, with the series of each; runs without the file have none."""
    wanted = [CLEAN, *results.tested_shifts]
    tables = [
        polars.read_parquet(run.folder / SETS_FILE)
        .filter(polars.col("shift").is_in(wanted))
        .with_columns(polars.lit(run.series).alias("series"))
        for run in results.runs
        if (run.folder / SETS_FILE).is_file()
    ]
    return polars.concat(tables) if tables else polars.DataFrame()


def _table(results: Results, rows: polars.DataFrame, kind: str, promised: float) -> ComparisonTable:
    levels = rows["level"].unique().sort().to_list()
    means = rows.group_by("series", "level").agg(
        polars.col("coverage").mean(), polars.col("size").mean()
    )
    cells = {
        (series, level): f"{coverage:.2f} / {size:.1f}"
        for series, level, coverage, size in means.rows()
    }
    heading = ["Method", *("Clean" if level == 0 else f"Level {level}" for level in levels)]
    table = [
        [series, *(cells.get((series, level), "") for level in levels)]
        for series in results.series
        if (series, 0) in cells
    ]
    note = f"{CONFORMAL_NOTE.format(promised=promised)} {lost_words(rows, promised)}"
    return ComparisonTable(f"{TITLES[kind]} sets", note, heading, table)


def lost_words(rows: polars.DataFrame, promised: float) -> str:
    """Say where coverage is lost: how often, and the lowest."""
    levels = rows.filter(polars.col("level") > 0)
    if levels.is_empty():
        return "Nothing was measured under shift."
    lost = levels.filter(polars.col("coverage") < promised)
    if lost.is_empty():
        return f"No level of any shift has a coverage below {promised:.2f}."
    worst = lost.sort("coverage").row(0, named=True)
    return (
        f"Coverage is below {promised:.2f} in {len(lost):,} of {len(levels):,} cases of a run, a "
        f"shift and a level; the lowest is {worst['coverage']:.2f}, {worst['series']} under "
        f"{worst['shift']}, level {worst['level']}."
    )
