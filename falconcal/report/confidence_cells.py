"""Confidences in cells, half a bin wide: what diagrams and histograms of any level are made of."""

import polars

from falconcal.metrics import BINS
from falconcal.metrics.binning import EDGE_TOLERANCE
from falconcal.report.results import Results, StoredRun, explaining_read_errors, open_scores

CONFIDENCE_CELLS = 2 * BINS


def confidence_cells(results: Results) -> polars.DataFrame:
    """Return series, shift, level, cell, counts, confidence_sum, hits and lowest_label.

    Seeds are pooled. Where the lowest label is below 0, examples have no known class and hits mean
    nothing.
    """
    keys = ["series", "shift", "level", "cell"]
    return (
        polars.concat([_cells_of(run) for run in results.runs])
        .group_by(keys, maintain_order=True)
        .agg(
            polars.col("counts", "confidence_sum", "hits").sum(),
            polars.col("lowest_label").min(),
        )
        .sort("cell", maintain_order=True)
    )


def bin_expression(confidence: polars.Expr, bins: int = BINS) -> polars.Expr:
    """Return ``falconcal.metrics.binning.bin_index`` as an expression, for scores on disk."""
    upper = ((confidence.cast(polars.Float64) - EDGE_TOLERANCE) * bins).ceil()
    return (upper.cast(polars.Int64) - 1).clip(0, bins - 1)


def _cells_of(run: StoredRun) -> polars.DataFrame:
    columns = polars.col("shift").cast(polars.String), polars.col("level").cast(polars.Int64)
    sums = (
        open_scores(run)
        .select(*columns, "label", "confidence", "correct")
        .group_by(
            "shift",
            "level",
            bin_expression(polars.col("confidence"), CONFIDENCE_CELLS).alias("cell"),
        )
        .agg(
            polars.len().cast(polars.Int64).alias("counts"),
            polars.col("confidence").cast(polars.Float64).sum().alias("confidence_sum"),
            polars.col("correct").cast(polars.Int64).sum().alias("hits"),
            polars.col("label").min().cast(polars.Int64).alias("lowest_label"),
        )
        .select(polars.lit(run.series).alias("series"), polars.all())
        .sort("shift", "level", "cell")  # groups come in any order, sums must not
    )
    with explaining_read_errors(run.scores_file):
        return sums.collect(engine="streaming")
