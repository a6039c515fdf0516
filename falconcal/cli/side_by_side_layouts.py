"""The tables of several files of predictions, in layouts that fit narrow terminals."""

from collections.abc import Iterator

from falconcal.cli.narrow_tables import TableLayout
from falconcal.errors import readable
from falconcal.evaluation.side_by_side import SideBySide
from falconcal.report.pages.side_by_side_page import (
    DIFFERENCE_HEADING,
    difference_rows,
    metric_columns,
)

ON_THE_PAGE = "The terminal is too narrow for {}: see the page."


def metric_layouts(both: SideBySide) -> Iterator[TableLayout]:
    """Yield the metrics with their 95 % intervals and the files' names, then with less of both."""
    heading, rows = metric_columns(both)
    numbers = ["Metric", *(f"[{number}]" for number, _ in enumerate(heading[1:], start=1))]
    values = [[name, *(text.split(" ")[0] for text in texts)] for name, *texts in rows]
    yield TableLayout(heading, rows)
    yield TableLayout(numbers, rows, _named(both))
    yield TableLayout(heading, values, ON_THE_PAGE.format("intervals"))
    yield TableLayout(numbers, values, f"{_named(both)}. {ON_THE_PAGE.format('intervals')}")


def difference_layouts(both: SideBySide) -> Iterator[TableLayout]:
    """Yield the differences with names of files, with their numbers, and with fewer figures."""
    rows, places = difference_rows(both), [readable(name) for name in both.assessments]
    numbered = [[f"[{places.index(row[0]) + 1}]", *row[1:]] for row in rows]
    short = [[*row[:3], row[-1]] for row in numbered]
    yield TableLayout(DIFFERENCE_HEADING, rows)
    yield TableLayout(DIFFERENCE_HEADING, numbered, _named(both))
    note = f"{_named(both)}. {ON_THE_PAGE.format('intervals and p-values')}"
    yield TableLayout([*DIFFERENCE_HEADING[:3], DIFFERENCE_HEADING[-1]], short, note)


def _named(both: SideBySide) -> str:
    names = (f"[{number}] {name}" for number, name in enumerate(both.assessments, start=1))
    return ", ".join(names)
