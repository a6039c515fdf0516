"""The tables of the docs have one row per entry; a new entry gets its rows from one command."""

import pytest

from falconcal.cli.catalogue_tables import CATALOGUE
from falconcal.methods import METHODS
from falconcal.metrics import METRICS, Metric
from tests.helpers import docs_tables
from tests.helpers.docs_tables import (
    CATALOGUE_PAGE,
    MEASURING,
    METHODS_PAGE,
    REWRITE,
    STUDY_PAGE,
    catalogue,
    metric_row,
    study_file,
    with_methods,
    with_metrics,
)


def test_the_catalogue_is_that_of_the_list() -> None:
    assert CATALOGUE_PAGE.read_text() == catalogue(), f"write it again: {REWRITE}"


def test_the_page_of_the_study_file_has_every_key() -> None:
    assert STUDY_PAGE.read_text() == study_file(), f"write it again: {REWRITE}"
    assert [line for line in study_file().splitlines() if line.endswith("|  |")] == []


def test_the_table_of_metrics_is_that_of_the_records() -> None:
    page = MEASURING.read_text()
    assert page == with_metrics(page), f"write it again: {REWRITE}"


def test_every_method_has_a_row() -> None:
    page = METHODS_PAGE.read_text()
    assert page == with_methods(page), f"add the rows that are missing: {REWRITE}"


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_entry_has_a_line_that_says_what_it_is(kind: str) -> None:
    assert [name for name, line in CATALOGUE[kind]().items() if not line.strip()] == []


def test_new_entries_get_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = Metric(METRICS["confidence"].function, "sureness", needs=(), better=None, best=None)
    monkeypatch.setitem(METRICS, "sureness", sure)
    monkeypatch.setitem(METHODS, "sharper_focal", METHODS["focal"])
    assert "\n| `sharper_focal` | Focal loss: " in catalogue()
    assert f"\n{metric_row('sureness', sure)}\n| `micro_ece` |" in with_metrics(
        MEASURING.read_text()
    )
    before = METHODS_PAGE.read_text()
    (row,) = set(with_methods(before).splitlines()) - set(before.splitlines())
    assert row.startswith("| `sharper_focal` | `Focal`: Focal loss: ")
    assert row.endswith(" | `gamma` 3.0 |")
    assert docs_tables.own_settings("sharper_focal") == {"gamma": "3.0"}
