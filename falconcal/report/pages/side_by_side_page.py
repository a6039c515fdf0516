"""The page of several sets of predictions of the same examples: ``score.html`` of them all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import falconcal
from falconcal.errors import UserError, described, readable
from falconcal.evaluation.assessment import Assessment, MetricValue
from falconcal.evaluation.side_by_side import SideBySide
from falconcal.metrics import METRICS
from falconcal.report.charts.figure import Figure
from falconcal.report.charts.score_charts import reliability_figure
from falconcal.report.pages.report_page import Cell, HtmlTable, render_template
from falconcal.report.pages.score_page import (
    interval_notes,
    value_words,
    write_numbers_and_page,
)
from falconcal.report.tables.best_cells import best_marks

SIDES = ("better", "worse")
DIFFERENCE_HEADING = ["File", "Metric", "Difference", "95 % interval", "p", "In words"]


def write_side_by_side(
    both: SideBySide, directory: str | Path, *, title: str, sources: Sequence[str] = ()
) -> Path:
    """Write ``metrics.json``, ``figures/*.svg`` and ``score.html`` of several sets.

    Args:
        both: What ``falconcal.evaluation.assess_together`` returned.
        directory: The folder to write to.
        title: The heading of the page.
        sources: What was read, in words, to be said on the page.

    Returns:
        The page, ``score.html`` in the folder.

    Raises:
        UserError: If ``both`` is something else, the folder cannot be written to, or a figure
            cannot be drawn.

    Example:
        >>> from falconcal.report import write_side_by_side
        >>> write_side_by_side(["a.csv", "b.csv"], "scored", title="both")
        Traceback (most recent call last):
        falconcal.errors.UserError: expected what assess_together found, got a list.
    """
    if not isinstance(both, SideBySide):
        raise UserError(f"expected what assess_together found, got {described(both)}.")
    figures = _figures(both)
    return write_numbers_and_page(
        both.to_json(), figures, lambda: _page(both, figures, title, sources), directory
    )


def difference_rows(both: SideBySide) -> list[list[str]]:
    """Return the differences from the first set as text."""
    return [
        [
            readable(row.name),
            row.metric,
            f"{row.difference.value:+.4f}",
            f"{row.difference.low:+.4f} to {row.difference.high:+.4f}",
            f"{row.p_holm:.3g}",
            row.words,
        ]
        for row in both.differences
    ]


def metric_columns(both: SideBySide) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows of all metrics, one column per set, as text."""
    names = [name for name in METRICS if all(name in one.metrics for one in _all(both))]
    rows = [
        [name, *(" ".join(_bracketed(one.metrics[name])) for one in _all(both))] for name in names
    ]
    return ["Metric", *map(readable, both.assessments)], rows


def compared_words(both: SideBySide, name: str) -> list[str]:
    """Return in what one set is better and worse than the first; nothing for the first itself."""
    rows = [row for row in both.differences if row.name == name]
    if not rows:
        return []
    named = {words: [row.metric for row in rows if row.words.startswith(words)] for words in SIDES}
    verdicts = [f"{words} in {', '.join(metrics)}" for words, metrics in named.items() if metrics]
    return [f"Compared with {readable(both.reference)}: {'; '.join(verdicts) or 'no difference'}."]


def _metric_table(both: SideBySide) -> HtmlTable:
    """Return the metrics, the best set of each marked."""
    heading, rows = metric_columns(both)
    cells: list[list[str | Cell]] = []
    for row, (name, *texts) in enumerate(rows):
        values = {(row, place): text for place, text in enumerate(texts)}
        best = best_marks(values, METRICS[name].better)
        cells.append(
            [name, *(Cell(text, best=(row, place) in best) for (_, place), text in values.items())]
        )
    return HtmlTable(heading, cells)


def _all(both: SideBySide) -> list[Assessment]:
    return list(both.assessments.values())


def _bracketed(measured: MetricValue) -> list[str]:
    value, bounds = value_words(measured)
    return [value] if measured.low is None else [value, f"({bounds})"]


def _figures(both: SideBySide) -> list[Figure]:
    """Return the reliability diagram of each set."""
    return [
        replace(
            reliability_figure(one),
            name=f"reliability-{number}",
            caption=f"{readable(name)}. {reliability_figure(one).caption}",
        )
        for number, (name, one) in enumerate(both.assessments.items(), start=1)
    ]


def _page(both: SideBySide, figures: list[Figure], title: str, sources: Sequence[str]) -> str:
    sentences = []
    for name, one in both.assessments.items():
        first, *others = one.sentences
        words = " ".join([*others, *compared_words(both, name)])
        sentences.append([f"{readable(name)}: {first}", words])
    return render_template(
        "side_by_side.html.jinja",
        title=readable(title),
        sentences=sentences,
        examples=_all(both)[0].examples,
        sources=[readable(source) for source in sources],
        reference=readable(both.reference),
        reliability=figures,
        differences=HtmlTable(DIFFERENCE_HEADING, difference_rows(both)),
        metrics=_metric_table(both),
        notes=interval_notes(_all(both)[0]),
        version=falconcal.__version__,
    )
