"""Scores of examples reduced to rows: metrics at every level, and figures pooled over a shift."""

from dataclasses import asdict, fields

import polars
import torch

from falconcal.errors import UserError, described
from falconcal.evaluation.shifted_batches import OUTLIER_LEVEL
from falconcal.io.output_folder import CLEAN
from falconcal.metrics import POOLED, metrics_without, outlier_detection
from falconcal.metrics.outlier_detection import SIGNALS
from falconcal.metrics.predictions import Scores

SCORE_FIELDS = tuple(field.name for field in fields(Scores))
ROW_SCHEMA = {
    "shift": polars.String,
    "level": polars.Int64,  # empty for the pooled figures of a shift
    "metric": polars.String,
    "value": polars.Float64,
    "examples": polars.Int64,
}


def scores_to_rows(scores: polars.DataFrame) -> polars.DataFrame:
    """Reduce scores to rows: every metric at every level, and the pooled figures of each shift.

    Outliers, which have no true class, have confidence, entropy, and how well these separate them
    from the clean data.

    Args:
        scores: The table that ``score_under_shift`` returns.

    Returns:
        One row per shift, level and metric: shift, level, metric, value, examples.

    Raises:
        UserError: If the table is another.

    Example:
        >>> import torch
        >>> import falconcal
        >>> from falconcal.evaluation import score_under_shift, scores_to_rows
        >>> data = falconcal.load_dataset("digits").test
        >>> pixels = data.inputs[0].numel()
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, 10))
        >>> rows = scores_to_rows(score_under_shift(model, data, []))
        >>> sorted(set(rows["shift"]))
        ['clean']
    """
    if not isinstance(scores, polars.DataFrame) or not {"shift", "level"} <= set(scores.columns):
        raise UserError(
            "expected the table that falconcal.evaluation.score_under_shift gives, got "
            f"{described(scores)}."
        )
    clean = _scores(scores.filter(polars.col("shift") == CLEAN))
    clean_rows = _metric_rows(CLEAN, 0, clean)
    rows = clean_rows.copy()
    for name in scores["shift"].unique(maintain_order=True):
        table = scores.filter(polars.col("shift") == name)
        if name != CLEAN and (table["label"] < 0).all():
            rows += _outlier_rows(name, clean, _scores(table))
        elif name != CLEAN:
            rows += [{**row, "shift": name} for row in clean_rows]
            rows += _shift_rows(name, clean, scores_by_level(table))
    return polars.DataFrame(rows, schema=ROW_SCHEMA)


def scores_by_level(table: polars.DataFrame) -> dict[int, Scores]:
    """Return the scores of each level in a table of one shift."""
    parts = table.partition_by("level", maintain_order=True)
    return {int(part["level"][0]): _scores(part) for part in parts}


def _outlier_rows(name: str, clean: Scores, outside: Scores) -> list[dict[str, object]]:
    unlabelled = metrics_without("labels", "all_classes")
    figures = {name: metric(outside) for name, metric in unlabelled.items()}
    for signal in SIGNALS:
        found = asdict(outlier_detection(clean, outside, signal))
        figures |= {f"{signal}_{figure}": value for figure, value in found.items()}
    return [
        _row(name, OUTLIER_LEVEL, metric, value, len(outside)) for metric, value in figures.items()
    ]


def _shift_rows(name: str, clean: Scores, levels: dict[int, Scores]) -> list[dict[str, object]]:
    rows = [row for level, part in levels.items() for row in _metric_rows(name, level, part)]
    every = [clean, *levels.values()]
    examples = sum(len(part) for part in every)
    return rows + [
        _row(name, None, figure, metric(every), examples) for figure, metric in POOLED.items()
    ]


def _metric_rows(shift: str, level: int, scores: Scores) -> list[dict[str, object]]:
    return [
        _row(shift, level, name, metric(scores), len(scores))
        for name, metric in metrics_without("all_classes").items()
    ]


def _row(
    shift: str, level: int | None, metric: str, value: float, examples: int
) -> dict[str, object]:
    return {"shift": shift, "level": level, "metric": metric, "value": value, "examples": examples}


def _scores(table: polars.DataFrame) -> Scores:
    return Scores(
        **{name: torch.from_numpy(table[name].to_numpy().copy()) for name in SCORE_FIELDS}
    )
