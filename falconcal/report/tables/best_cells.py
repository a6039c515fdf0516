"""The best of several figures in a table of text, to be marked."""

from collections.abc import Iterable

from falconcal.metrics.metric import Better
from falconcal.report.tables.headline_columns import NOT_KNOWN, Column

CellIndex = tuple[int, int]  # row and column
Marks = frozenset[CellIndex]
BEFORE_FIGURES = 2  # columns of the headline table: the method and its seeds


def best_of_columns(rows: list[list[str]], columns: Iterable[Column]) -> Marks:
    """Mark the best of each figure; a confidence or a time has no best."""
    marks: Marks = frozenset()
    for number, column in enumerate(columns, start=BEFORE_FIGURES):
        cells = {(row, number): texts[number] for row, texts in enumerate(rows)}
        marks |= best_marks(cells, column.better)
    return marks


def lowest_of_rows(rows: list[list[str]]) -> Marks:
    """Mark the lowest figure of each row; its first cell is its name."""
    marks: Marks = frozenset()
    for row, (_, *texts) in enumerate(rows):
        marks |= best_marks(
            {(row, place): text for place, text in enumerate(texts, start=1)}, "lower"
        )
    return marks


def best_marks(cells: dict[CellIndex, str], better: Better | None) -> Marks:
    """Return the positions of the best of several figures; a single one is not marked."""
    values = {cell: value for cell, text in cells.items() for value in _number(text)}
    if len(values) < 2 or better not in ("lower", "higher"):
        return frozenset()
    best = (max if better == "higher" else min)(values.values())
    return frozenset(cell for cell, value in values.items() if value == best)


def _number(cell: str) -> list[float]:
    """Return the mean that a cell shows, or nothing."""
    return [] if cell == NOT_KNOWN else [float(cell.split()[0].replace(",", ""))]
