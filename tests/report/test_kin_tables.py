"""Shifts that are kin of what a method was fitted on: marked, and apart from the unseen ones."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from falconcal.cli import terminal
from falconcal.report import load_results, write_paper, write_report, write_tables
from falconcal.report.results import Results
from falconcal.report.tables.kin_tables import (
    KIN_NOTE,
    KIN_TITLE,
    NOTHING_UNSEEN,
    Standing,
    kin_cells,
    standings,
    unseen_shifts,
)
from falconcal.report.tables.summary import tested_shift_rows as shown_rows
from tests.helpers.report_study import make_study


def record_kin(directory: Path, method: str, kin: object, fitted_on: object = ("wind",)) -> None:
    for file in directory.glob(f"runs/default/{method}/*/run.json"):
        record = json.loads(file.read_text()) | {"kin": kin, "fitted_on": fitted_on}
        file.write_text(json.dumps(record))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return make_study(tmp_path / "digits")


@pytest.fixture
def results(study: Path) -> Results:
    record_kin(study, "falcon", ["noise", "contrast"])
    return load_results(study)


def test_kin_are_marked_for_the_method_that_was_fitted_on_them_alone(results: Results) -> None:
    # the figures of two seeds, 0.02 apart: that of seed 0 plus 0.01
    assert shown_rows(results) == [
        ["rotation", "0.110", "0.020"],
        ["noise", "0.210", "0.030 (kin)"],
        ["zoom", "0.310", "0.070"],
        ["mean of tested shifts", "0.210", "0.040"],
        ["mean of unseen shifts", "0.210", "0.045"],
    ]


def test_means_and_wins_over_all_and_over_the_unseen(results: Results) -> None:
    assert unseen_shifts(results) == ("rotation", "zoom")
    assert kin_cells(results)[1] == [
        ["dropout", "0", "0.210", "0 / 0", "0.210", "0 / 0"],
        ["falcon", "1", "0.040", "3 / 0", "0.045", "2 / 0"],
    ]


def test_losses_are_counted_against_the_plain_method_of_the_study(study: Path) -> None:
    record_kin(study, "dropout", ["rotation"])
    content = json.loads((study / "study.json").read_text()) | {"report": {"plain": "falcon"}}
    (study / "study.json").write_text(json.dumps(content))
    found = standings(load_results(study), ["noise", "zoom"])["dropout"]
    assert (found.shifts, found.lower, found.higher) == (2, 0, 2)
    assert found.mean_micro_ece == pytest.approx(0.26)


def test_without_the_plain_method_nothing_is_counted(study: Path) -> None:
    record_kin(study, "falcon", ["noise"])
    content = json.loads((study / "study.json").read_text()) | {"report": {"plain": "absent"}}
    (study / "study.json").write_text(json.dumps(content))
    results = load_results(study)
    assert kin_cells(results)[1][1] == ["falcon", "1", "0.040", "n/a", "0.045", "n/a"]


def test_where_all_shifts_are_kin_there_is_no_mean_of_unseen(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_kin(study, "falcon", ["noise", "rotation", "zoom"])
    results = load_results(study)
    assert standings(results, unseen_shifts(results))["falcon"] == Standing(0, None, 0, 0)
    assert shown_rows(results)[-1] == ["mean of unseen shifts", "n/a", "n/a"]
    text = io.StringIO()
    monkeypatch.setattr(terminal, "output", Console(file=text, width=200))
    terminal.show_unseen(results)
    assert text.getvalue().strip() == NOTHING_UNSEEN


@pytest.mark.end_to_end
def test_every_table_marks_them(study: Path, results: Results) -> None:
    write_report(study, formats=())
    write_paper(study)
    for name in ("summary.md", "report.html", "paper/tables.md", "paper/tables.tex"):
        text = (study / name).read_text()
        for words in ("0.030 (kin)", "mean of unseen shifts", KIN_NOTE, KIN_TITLE, "3 / 0"):
            assert words in text, (name, words)
    assert "0.810 (kin)" in (study / "summary.md").read_text()  # of the shift chosen on
    assert "falcon was fitted on wind." in (study / "summary.md").read_text()
    found = json.loads((study / "summary.json").read_text())["kin"]
    assert found["unseen_shifts"] == ["rotation", "zoom"]
    own = found["methods"]["falcon"]
    assert (own["fitted_on"], own["kin"]) == (["wind"], ["noise", "contrast"])
    assert own["all"] == pytest.approx(
        {"shifts": 3, "mean_micro_ece": 0.04, "lower": 3, "higher": 0}
    )
    assert own["unseen"]["mean_micro_ece"] == pytest.approx(0.045)
    assert found["methods"]["dropout"]["kin"] == []
    assert set(found["methods"]) == set(results.series)


def test_kin_among_the_shifts_chosen_on_alone_change_no_table_of_tested_ones(study: Path) -> None:
    record_kin(study, "falcon", ["contrast"])
    results = load_results(study)
    assert len(shown_rows(results)) == 4
    write_tables(results, study)
    text = (study / "summary.md").read_text()
    assert "0.810 (kin)" in text
    assert KIN_NOTE in text
    assert KIN_TITLE not in text


def written(folder: Path) -> list[str]:
    """Return the texts of the tables of a study."""
    write_tables(load_results(folder), folder)
    return [(folder / name).read_text() for name in ("summary.md", "summary.json")]


@pytest.fixture(scope="module")
def without_kin(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return written(make_study(tmp_path_factory.mktemp("plain") / "without"))


@pytest.mark.parametrize("kin", [[], {}, "noise", ["elsewhere"], 3])
def test_a_study_without_kin_is_reported_as_ever(
    study: Path, without_kin: list[str], kin: object
) -> None:
    record_kin(study, "falcon", kin)
    texts = written(study)
    assert texts == without_kin
    assert "kin" not in json.loads(texts[1])
