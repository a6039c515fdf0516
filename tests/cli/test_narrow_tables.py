"""The summary in a narrow terminal: no name and no number is ever broken."""

import io
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import polars
import pytest
from rich.console import Console

from falconcal.cli import terminal
from falconcal.cli.narrow_tables import TableLayout, print_fitting
from falconcal.cli.side_by_side_layouts import difference_layouts, metric_layouts
from falconcal.evaluation.side_by_side import SideBySide, assess_together
from falconcal.report import headline, load_results
from falconcal.studies import find_study
from tests.helpers.report_study import make_study

NAMES = list(find_study("digits_methods").methods)
LONGEST = "falcon_shift_temperature"  # of the demo


def printed(title: str, layouts: list[TableLayout], width: int) -> str:
    text = io.StringIO()
    print_fitting(Console(file=text, width=width), title, layouts)
    return text.getvalue()


def show(directory: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    text = io.StringIO()
    monkeypatch.setattr(terminal, "output", Console(file=text, width=width))
    terminal.show_summary(load_results(directory))
    return text.getvalue()


def rename(directory: Path, old: str, new: str) -> None:
    file = directory / "rows.parquet"
    rows = polars.read_parquet(file)
    rows.with_columns(polars.col("method").replace({old: new})).write_parquet(file)
    runs = directory / "runs" / "default"
    (runs / old).rename(runs / new)


@pytest.mark.parametrize("figure", ["0.123", "0.123 ± 0.012"])
def test_all_methods_of_a_study_stand_unbroken_in_80_columns(figure: str) -> None:
    heading = ["Method", "Seeds", "Accuracy", "Clean ECE", "Mean micro ECE", "Mean macro ECE"]
    heading += ["Last-level confidence", "Training"]
    cells = ["3", *["0.123"] * 5, "1,234.5 s"]
    whole = TableLayout(heading, [[name, "3", *[figure] * 5, "1,234.5 s"] for name in NAMES])
    means = TableLayout(heading, [[name, *cells] for name in NAMES])
    text = printed("Summary", [whole, means], 80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(NAMES) >= 21
    for name in NAMES:
        assert [line.split() for line in lines if line.split()[:1] == [name]] == [
            [name, *" ".join(cells).split()]
        ]


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("width", [60, 70, 80, 100, 140])
def test_figures_are_left_out_and_named_never_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, seeds: tuple[int, ...]
) -> None:
    study = make_study(tmp_path / "digits", seeds)
    rename(study, "falcon", LONGEST)
    text = show(study, width, monkeypatch)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    row = next(line.split() for line in lines if LONGEST in line)
    heading, rows = headline(load_results(study), deviations=False)
    whole = next(row for row in rows if row[0] == LONGEST)
    if "±" not in row:
        assert row == " ".join(whole).split()[: len(row)]
    words = " ".join(text.split())
    left_out = words.partition("too narrow for")[2]
    assert ("deviations" in left_out) == ("±" not in row and len(seeds) > 1)
    shown = "Training" in words.partition("too narrow for")[0]
    assert shown != ("Training" in left_out)
    assert len(heading) == len(whole)


def test_where_nothing_fits_the_terminal_wraps_whole_lines() -> None:
    rows = [["a" * 30, "0.123"]]
    text = printed("Summary", [TableLayout(["Method", "Accuracy"], rows, "Left out: all.")], 20)
    assert "a" * 30 + "  0.123" in text
    assert text.endswith("Left out: all.\n")


def test_headings_break_between_words_only_where_they_must() -> None:
    layout = TableLayout(["Method", "Mean micro ECE"], [["one", "0.5"]])
    assert "Mean micro ECE" in printed("", [layout], 40)
    narrow = printed("", [layout], 16)
    assert "Mean micro" not in narrow
    assert all(word in narrow.split() for word in ("Mean", "micro", "ECE", "0.5"))


def test_what_names_hold_cannot_steer_the_terminal() -> None:
    text = printed("Summary", [TableLayout(["Method", "[b]x"], [["\x1b[31mred", "[red]1"]])], 80)
    assert "\x1b" not in text
    assert "[red]1" in text


def long_names(count: int) -> list[str]:
    return [f"predictions_of_a_network_with_a_long_name_{number}.csv" for number in range(count)]


@cache
def assessed(count: int) -> SideBySide:
    labels = [0, 1] * 10
    return assess_together({name: ([[0.6, 0.4]] * 20, labels) for name in long_names(count)})


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("layouts", [metric_layouts, difference_layouts])
def test_names_of_files_stand_unbroken_in_80_columns(
    count: int, layouts: Callable[[SideBySide], Iterable[TableLayout]]
) -> None:
    both = assessed(count)
    text = printed("Title", list(layouts(both)), 80)
    table, _, legend = text.partition("\n[1] ")
    assert max(map(len, table.splitlines())) <= 80
    for number, name in enumerate(long_names(count), start=1):
        assert name in f"[1] {legend}"
        assert number == 1 or f"[{number}]" in table


def test_a_wide_terminal_has_the_names_and_all_figures() -> None:
    both = assess_together({name: ([[0.6, 0.4]] * 20, [0, 1] * 10) for name in ("a.csv", "b.csv")})
    text = printed("Title", list(difference_layouts(both)), 120)
    assert "b.csv" in text
    assert "[2]" not in text
    assert "95 % interval" in text
