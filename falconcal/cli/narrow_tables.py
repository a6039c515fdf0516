"""Tables that fit the terminal without breaking a name or a number.

A table is given in several layouts, the fullest first; the first that fits is shown. A heading may
break between words. Where no layout fits, the last is printed as lines that the terminal wraps.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from falconcal.errors import readable


@dataclass(frozen=True)
class TableLayout:
    """A table of text, and what a reader must know that it leaves out."""

    heading: list[str]
    rows: list[list[str]]
    left_out: str = ""

    @property
    def widths(self) -> list[int]:
        """The width of each column: its longest cell, or the longest word of its heading."""
        columns = zip(*([*map(readable, row)] for row in self.rows), strict=True)
        return [
            max(cell_len(text) for text in (*readable(head).split(), *cells))
            for head, cells in zip(self.heading, columns, strict=True)
        ]


def print_fitting(console: Console, title: str, layouts: Iterable[TableLayout]) -> None:
    """Print the first layout that fits, first with room between its columns, then without."""
    for layout in layouts:
        for gap in (1, 0):
            # a column has its gap, a border before it, and the table one more at each end
            if sum(layout.widths) + len(layout.widths) * (1 + gap) + 1 <= console.width:
                console.print(_table(title, layout, gap, console.width))
                _say_what_is_left_out(console, layout)
                return
    _print_lines(console, title, layout)
    _say_what_is_left_out(console, layout)


def _table(title: str, layout: TableLayout, gap: int, room: int) -> Table:
    shown = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, gap, 0, 0))
    whole = [
        max(width, cell_len(head))
        for head, width in zip(layout.heading, layout.widths, strict=True)
    ]
    roomy = sum(whole) + len(whole) * (1 + gap) + 1 <= room  # headings need not break
    for number, head in enumerate(layout.heading):
        width = (whole if roomy else layout.widths)[number]
        shown.add_column(readable(head), justify="right" if number else "left", width=width)
    for row in layout.rows:
        shown.add_row(*(Text(readable(cell)) for cell in row))
    return shown


def _print_lines(console: Console, title: str, layout: TableLayout) -> None:
    for line in ([title], layout.heading, *layout.rows):
        console.print("  ".join(map(readable, line)), markup=False, highlight=False, soft_wrap=True)


def _say_what_is_left_out(console: Console, layout: TableLayout) -> None:
    if layout.left_out:
        console.print(layout.left_out, markup=False, highlight=False, style="dim")
