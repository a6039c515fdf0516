"""What the page's scripts read: every level of every shift in bins and cells, and rows as CSV."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy
import polars
import pytest

from falconcal.metrics import expected_calibration_error, reliability_curve
from falconcal.report import write_report
from falconcal.report.pages.explorer import explorer_data
from falconcal.report.results import load_results
from falconcal.report.tables.csv_files import summary_csv
from tests.helpers.report_study import (
    CHOSEN_ON,
    LAST_LEVEL,
    SEEDS,
    TESTED,
    _scores,
    make_outliers,
    make_scores,
    make_study,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("explorer") / "digits")


@pytest.fixture(scope="module")
def data(study: Path) -> dict[str, Any]:
    return explorer_data(load_results(study))


def stored(shift: str, level: int) -> polars.DataFrame:
    scores = polars.concat([make_scores(seed, TESTED + CHOSEN_ON) for seed in SEEDS])
    return scores.filter(polars.col("shift").cast(polars.String) == shift, level=level)


def rung_of(data: dict[str, Any], shift: str, level: int) -> dict[str, Any]:
    """Find a level as the page's script does."""
    series = data["series"].index("falcon")
    place = [one["name"] for one in data["shifts"]].index(shift)
    found: dict[str, Any] = data["rungs"][series][place][
        data["shifts"][place]["levels"].index(level) - 1
    ]
    return found


RUNGS = [(shift, level) for shift, last in LAST_LEVEL.items() for level in range(1, last + 1)]


@pytest.mark.end_to_end
@pytest.mark.parametrize(("shift", "level"), RUNGS)
def test_bins_of_a_level_are_those_of_the_library(
    data: dict[str, Any], shift: str, level: int
) -> None:
    scores, rung = _scores(stored(shift, level)), rung_of(data, shift, level)
    curve = reliability_curve(scores)
    assert rung["ece"] == pytest.approx(expected_calibration_error(scores), abs=1e-4)
    assert rung["n"] == len(scores)
    for place, pair in enumerate(rung["bins"]):
        assert sum(rung["cells"][2 * place : 2 * place + 2]) == curve.counts[place]
        assert (pair is None) == (curve.counts[place] == 0)
        if pair is not None:
            expected = [float(curve.confidence[place]), float(curve.accuracy[place])]
            assert pair == pytest.approx(expected, abs=1e-4)


@pytest.mark.end_to_end
def test_cells_and_means_of_the_clean_data(data: dict[str, Any]) -> None:
    table, clean = stored("clean", 0), data["clean"][0]
    confidence = table["confidence"].to_numpy()
    # closed above, 0 in the first: numpy's own are closed below, so mirror
    counts, _ = numpy.histogram(1 - (confidence - 1e-6).clip(0), numpy.linspace(0, 1, 21))
    assert clean["cells"] == counts[::-1].tolist()
    assert clean["confidence"] == pytest.approx(confidence.mean(), abs=1e-4)
    assert clean["accuracy"] == pytest.approx(table["correct"].to_numpy().mean(), abs=1e-4)


@pytest.mark.end_to_end
def test_shifts_stand_in_the_order_of_the_page(data: dict[str, Any]) -> None:
    assert [(one["name"], one["kind"]) for one in data["shifts"]] == [
        *((shift, "tested") for shift in TESTED),
        *((shift, "selection") for shift in CHOSEN_ON),
    ]
    assert data["shifts"][0]["levels"] == [0, 1, 2]
    # only rotation has a picture, its three levels side by side
    assert [one["columns"] for one in data["shifts"]] == [3, 0, 0, 0]
    assert len(data["colours"]) == len(data["series"]) == len(data["clean"]) == len(data["rungs"])


def test_outliers_have_confidences_alone(tmp_path: Path) -> None:
    study = make_study(tmp_path / "outside")
    make_outliers(study, "zoom", ["rotation", "noise"])
    data = explorer_data(load_results(study))
    assert data["shifts"][-1] == {"name": "zoom", "kind": "outliers", "levels": [1], "columns": 0}
    rung = data["rungs"][0][-1][0]
    assert [rung[name] for name in ("accuracy", "ece", "bins")] == [None, None, None]
    assert sum(rung["cells"]) == rung["n"] == 80


@pytest.mark.end_to_end
def test_the_page_holds_both(tmp_path: Path) -> None:
    study = make_study(tmp_path / "written")
    text = write_report(study).read_text()
    found = dict(
        re.findall(r'(?s)<script type="application/json" id="([^"]*)">(.*?)</script>', text)
    )
    results = load_results(study)
    assert json.loads(found["explorer-data"]) == explorer_data(results)
    assert json.loads(found["rows-csv"]) == summary_csv(results)
    assert re.findall('data-strip="([^"]*)"', text) == ["rotation"]
    whole = polars.read_csv(study / "rows.csv")
    assert whole.equals(polars.read_parquet(study / "rows.parquet").select(whole.columns))


@pytest.mark.end_to_end
def test_summarised_rows_are_means_over_seeds(study: Path) -> None:
    table = polars.read_csv(io.StringIO(summary_csv(load_results(study))))
    first = table.row(0, named=True)
    assert (first["series"], first["shift"], first["level"], first["seeds"]) == (
        *("dropout", "clean"),
        *(0, 2),
    )
    assert first["accuracy"] == pytest.approx(0.91)  # 0.90 and 0.92
    assert first["micro_ece"] is None
    pooled = table.filter(polars.col("level").is_null(), series="falcon", shift="zoom")
    assert pooled["micro_ece"].to_list() == pytest.approx([0.07])  # 0.06 and 0.08
    assert pooled["accuracy"].to_list() == [None]
    # clean, levels and the whole of every shift, for two methods
    assert len(table) == 2 * (1 + sum(2 + last for last in LAST_LEVEL.values()))
