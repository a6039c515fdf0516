"""The paper's own figures beside ours, where a study is one of the paper's.

C. Tomani & F. Buettner, "Towards Trustworthy Predictions from Deep Neural Networks with Fast
Adversarial Calibration", AAAI 2021. ``published.json`` holds the figures by study and method.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import polars

from falconcal.io.output_folder import DEFAULT_VARIANT
from falconcal.report.results import Results
from falconcal.report.tables.headline_columns import HEADLINE, NOT_KNOWN, Column

PUBLISHED_NOTE = (
    "The paper's figures are those printed in its tables and text (Tomani & Buettner, AAAI 2021). "
    "They come from other seeds, other settings and, for the sampling methods, other test images."
)


@dataclass(frozen=True)
class PaperComparison:
    """A figure of a method here, and the paper's; either may be missing."""

    method: str
    column: Column
    ours: float | None
    paper: float | None


def paper_comparisons(results: Results, summary: polars.DataFrame) -> list[PaperComparison]:
    """Return every figure that the paper has for this study, ours beside it."""
    roles = results.roles
    ours = {row["method"]: row for row in summary.to_dicts() if row["variant"] == DEFAULT_VARIANT}
    beside: dict[str, list[str]] = {}
    for method in ours:
        beside.setdefault(roles.columns.get(method, method), []).append(method)
    figures = published(roles.paper or str(results.study["name"]))
    return [
        PaperComparison(method, column, ours.get(method, {}).get(column.name), figure)
        for column in HEADLINE
        for paper_method, figure in figures.get(column.name, {}).items()
        for method in beside.get(paper_method, [paper_method])
    ]


def paper_cells(results: Results, summary: polars.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table, one row per method; none where there is nothing.

    Methods come in the order of the study, then those that only the paper has.
    """
    found = {(pair.method, pair.column.name): pair for pair in paper_comparisons(results, summary)}
    columns = [column for column in HEADLINE if any(name == column.name for _, name in found)]
    methods = dict.fromkeys([*summary["method"], *(method for method, _ in found)])
    heading = ["Method"]
    for column in columns:
        heading += [f"{column.heading}, here", f"{column.heading}, paper"]
    rows = []
    for method in methods:
        known = [found.get((method, column.name)) for column in columns]
        if any(known):
            rows.append([method, *(text for pair in known for text in _texts(pair))])
    return heading, rows


def _texts(pair: PaperComparison | None) -> tuple[str, str]:
    if pair is None:
        return NOT_KNOWN, NOT_KNOWN
    digits = pair.column.digits
    ours, paper = (
        NOT_KNOWN if value is None else f"{value:.{digits}f}" for value in (pair.ours, pair.paper)
    )
    return ours, paper


def published(study: str) -> dict[str, dict[str, float]]:
    """Return the paper's figures of one of its studies by figure and method, else nothing."""
    return dict(_figures().get(study, {}))


@cache
def _figures() -> dict[str, Any]:
    file = resources.files(__package__).joinpath("published.json")
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return figures
