"""Studies from Python: the same folders as the command's, and what a notebook shows of them."""

import json
from pathlib import Path
from typing import Any

import polars
import pytest

import falconcal
from falconcal.errors import UsageError, UserError
from falconcal.integrations import StudyResult
from tests.helpers.chart_rows import chart_rows
from tests.helpers.paths import STRIPES
from tests.helpers.report_study import make_study


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    folder = make_study(tmp_path_factory.mktemp("stored") / "run")
    return StudyResult(folder, {"falcon, seed 1": "<b>no memory</b>"})


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning")
def test_a_study_from_python(tmp_path: Path) -> None:
    lines: list[str] = []
    words = {"methods": ["dropout"], "smoke": True, "report": False}
    found = falconcal.run_study("digits", tmp_path / "out", announce=lines.append, **words)  # type: ignore[arg-type]
    assert found.failed == {}
    assert found.rows["method"].unique().to_list() == ["dropout"]
    assert lines[0] == "dropout (reference), seed 0: training for 1 epochs"
    assert lines[-1].startswith("dropout, seed 0: done in ")
    lines.clear()
    falconcal.run_study("digits", tmp_path / "out", announce=lines.append, **words)  # type: ignore[arg-type]
    assert lines == ["dropout, seed 0: already complete"]  # and the reference is not needed


@pytest.mark.end_to_end
def test_a_whole_search_from_python(tmp_path: Path) -> None:
    """Two trials, their table and chart; the search goes on, and a study takes what it chose."""
    pytest.importorskip("optuna")
    lines: list[str] = []
    words: dict[str, Any] = {"announce": lines.append, "trust_code": ("tests",), "prune": False}
    small = ["tuning.epochs=3", "search.dropout.learning_rate=[0.01, 0.02, 0.03]"]
    out = tmp_path / "tuned"
    found = falconcal.tune_study(str(STRIPES), "dropout", 2, out, changes=small, **words)
    assert [line.partition(",")[0] for line in lines] == ["dropout", "dropout"]
    assert [row["state"] for row in found.trials] == ["complete", "complete"]
    assert "dropout" in found._repr_html_()
    assert found.plot().to_dict()
    more = falconcal.tune_study(str(STRIPES), "dropout", 3, out, changes=small, **words)
    assert len(lines) == 3
    assert [row["settings"] for row in more.trials[:2]] == [row["settings"] for row in found.trials]
    chosen = more.best["dropout"]
    best = min(more.trials, key=lambda row: row["criterion"])
    assert chosen["learning_rate"] == best["settings"]["learning_rate"]
    ran = falconcal.run_study(
        str(STRIPES), tmp_path / "ran", methods=["dropout"], seeds=1, settings=more.file,
        changes=["methods.dropout.epochs=3"], report=False, announce=None, trust_code=("tests",),
    )  # fmt: skip
    assert ran.failed == {}
    record = next((tmp_path / "ran").rglob("dropout/seed-0/settings.json"))
    assert json.loads(record.read_text())["settings"]["learning_rate"] == chosen["learning_rate"]


def test_a_study_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="Did you mean 'digits'"):
        falconcal.run_study("digit")


def test_a_result_shows_its_headline_table(stored: StudyResult) -> None:
    shown = stored._repr_html_()
    assert shown.count("<tr>") == 1 + len(stored.summary)
    assert "Mean micro ECE" in shown
    assert "&lt;b&gt;no memory&lt;/b&gt;" in shown


def test_a_result_draws_a_metric_by_level(stored: StudyResult) -> None:
    rows = chart_rows(stored.plot("accuracy"))
    assert {row["series"] for row in rows} == set(stored.summary["series"])
    with pytest.raises(UsageError, match="Did you mean 'ece'"):
        stored.plot("eec")


def rows() -> polars.DataFrame:
    return polars.DataFrame(
        {
            "shift": ["shear"] * 3 + ["blur"] * 2,
            "level": [0, 1, None, 0, 1],
            "metric": ["ece", "ece", "ece", "ece", "accuracy"],
            "value": [0.1, 0.2, 0.9, 0.1, 0.8],
            "method": ["a", "a", "a", "b", "b"],
        }
    )


def test_rows_are_drawn_by_shift_and_level() -> None:
    values = chart_rows(falconcal.plot_rows(rows(), "ece", by="method"))
    wanted = [("shear", 0, 0.1, "a"), ("shear", 1, 0.2, "a"), ("blur", 0, 0.1, "b")]
    assert [tuple(row.values()) for row in values] == wanted


@pytest.mark.parametrize(
    ("data", "metric", "error", "message"),
    [
        (rows(), "aurc", UsageError, "unknown metric 'aurc'"),
        (rows().drop("level"), "ece", UserError, "none called 'level'"),
        ([1, 2], "ece", UserError, "expected a table of rows"),
    ],
)
def test_what_are_no_rows_is_said(
    data: object, metric: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        falconcal.plot_rows(data, metric)
