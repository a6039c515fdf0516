"""Tables for a paper, the paper's figures beside ours, and the summary for machines."""

import json
from pathlib import Path

import polars
import pytest

from falconcal.report import load_results, summary_table, write_paper, write_report
from falconcal.report.tables.paper_values import paper_cells
from tests.helpers.report_study import make_study

pytestmark = pytest.mark.end_to_end

NAMED = json.dumps("digits")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A study that goes by the name of one of the paper's."""
    directory = make_study(tmp_path / "mnist")
    file = directory / "study.json"
    file.write_text(file.read_text().replace(f'"name": {NAMED}', '"name": "mnist"'))
    write_report(directory)
    return directory


def test_published_figures_stand_beside_ours(written: Path) -> None:
    heading, rows = paper_cells(load_results(written), summary_table(written))
    table = {row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in rows}
    # 0.243 and 0.082 are the paper's; (0.01 + 0.02 + 0.06) / 3 and half of 0.02 between two seeds
    assert table["dropout"]["Mean micro ECE, paper"] == "0.243"
    assert table["falcon"]["Mean micro ECE, paper"] == "0.082"
    assert table["falcon"]["Mean micro ECE, here"] == "0.040"
    assert table["mnf"]["Accuracy, here"] == "n/a"
    assert list(table)[:2] == ["dropout", "falcon"]
    assert "Beside the paper" in (written / "summary.md").read_text()
    assert "Beside the paper" in (written / "report.html").read_text()


def test_the_study_says_which_of_the_papers_figures_stand_beside(tmp_path: Path) -> None:
    directory = make_study(tmp_path / "digits")
    file = directory / "study.json"
    roles = {"paper": "mnist", "columns": {"dropout": "mc_dropout"}}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"report": roles}))
    heading, rows = paper_cells(load_results(directory), summary_table(directory))
    table = {row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in rows}
    assert table["dropout"]["Mean micro ECE, paper"] == "0.179"  # that of its MC dropout
    assert table["falcon"]["Mean micro ECE, paper"] == "0.082"
    assert "mc_dropout" not in table


@pytest.mark.end_to_end
def test_a_study_that_the_paper_lacks_has_no_such_table(tmp_path: Path) -> None:
    directory = make_study(tmp_path / "digits")
    write_report(directory)
    assert paper_cells(load_results(directory), summary_table(directory))[1] == []
    assert "Beside the paper" not in (directory / "report.html").read_text()


def test_tables_hold_the_best_in_bold_and_escape_names(written: Path) -> None:
    latex, markdown = (file.read_text() for file in write_paper(written))
    line = next(row for row in latex.splitlines() if row.startswith("falcon"))
    assert r"\textbf{0.040 $\pm$ 0.014}" in line
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 3
    assert "**0.040 ± 0.014**" in markdown
    # accuracy is the same for both methods, so both are best
    assert markdown.count("**0.910 ± 0.014**") == 2
    assert r"mc\_dropout" in latex
    assert "mc_dropout" not in latex


def test_machines_read_the_same_figures(written: Path) -> None:
    content = json.loads((written / "summary.json").read_text())
    falcon = next(row for row in content["methods"] if row["method"] == "falcon")
    summary = summary_table(written).filter(polars.col("method") == "falcon").to_dicts()[0]
    assert falcon["mean_micro_ece"]["mean"] == pytest.approx(summary["mean_micro_ece"])
    low, high = falcon["accuracy"]["interval"]
    assert low < high
    assert content["published"]["falcon"]["mean_micro_ece"] == 0.082
    assert content["micro_ece"]["falcon"]["zoom"] == pytest.approx(0.07)
