"""The summary for machines: the figures of summary.md as JSON, names as in the tables."""

import json
from typing import Any

import polars

from falconcal.report.charts.chart_data import pooled_curves
from falconcal.report.results import Results
from falconcal.report.study_evidence import StudyEvidence
from falconcal.report.tables.headline_columns import HEADLINE, SELECTION
from falconcal.report.tables.kin_tables import kin_json
from falconcal.report.tables.paper_values import paper_comparisons
from falconcal.report.tables.summary import DEVIATION_SUFFIX

SUMMARY_FORMAT = 1


def summary_json(results: Results, summary: polars.DataFrame, evidence: StudyEvidence) -> str:
    """Return the headline figures with deviations and intervals, and every shift's micro ECE."""
    bounds = _bounds(evidence)
    content = {
        "format": SUMMARY_FORMAT,
        "study": results.study["name"],
        "title": results.title,
        "notes": list(results.notes),
        "methods": [_method(row, bounds) for row in summary.to_dicts()],
        "micro_ece": _by_shift(results),
        "published": _published(results, summary),
        **kin_json(results),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _method(row: dict[str, Any], bounds: dict[tuple[str, str], list[float]]) -> dict[str, Any]:
    figures = {
        column.name: {
            "mean": row[column.name],
            "deviation": row[column.name + DEVIATION_SUFFIX],
            "interval": bounds.get((row["series"], column.name)),
        }
        for column in HEADLINE + SELECTION
    }
    return {name: row[name] for name in ("method", "variant", "series", "seeds")} | figures


def _bounds(evidence: StudyEvidence) -> dict[tuple[str, str], list[float]]:
    rows = evidence.table.filter(polars.col("shift").is_null(), kind="interval").to_dicts()
    return {(row["first"], row["figure"]): [row["low"], row["high"]] for row in rows}


def _by_shift(results: Results) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for series, shift, mean in (
        pooled_curves(results, "micro_ece").select("series", "shift", "mean").rows()
    ):
        table.setdefault(series, {})[shift] = mean
    return table


def _published(results: Results, summary: polars.DataFrame) -> dict[str, dict[str, float | None]]:
    table: dict[str, dict[str, float | None]] = {}
    for pair in paper_comparisons(results, summary):
        table.setdefault(pair.method, {})[pair.column.name] = pair.paper
    return table
