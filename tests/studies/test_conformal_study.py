"""Conformal sets in a study: measured with each run, and shown in the report."""

from pathlib import Path

import polars
import pytest

import falconcal
from falconcal.evaluation import sets_under_shift
from falconcal.io.output_folder import DEFAULT_VARIANT, SETS_FILE, RunKey
from falconcal.metrics import CONFORMAL_KINDS, fit_conformal
from falconcal.report import write_report
from falconcal.report.tables.conformal_tables import lost_words
from falconcal.studies.runner import do_runs
from tests.helpers.small_data import small_network, stripes
from tests.helpers.small_studies import TEXT, Silent
from tests.helpers.stripes import read_own


def test_every_level_is_measured_as_by_itself() -> None:
    model, data = small_network().eval(), stripes(60, seed=3)
    seen, shift = falconcal.predict(model, stripes(90)), falconcal.SHIFTS["contrast"]
    rows = sets_under_shift(model, seen, data, [shift], alpha=0.2)
    assert len(rows) == 6 * len(CONFORMAL_KINDS)
    other = falconcal.Examples(shift.at(data.inputs, 3), data.labels, data.bounds, data.classes)
    for kind in CONFORMAL_KINDS:
        summary = fit_conformal(seen, 0.2, kind).summary(falconcal.predict(model, other))
        row = rows.filter(shift="contrast", level=3, kind=kind).row(0, named=True)
        assert row["coverage"] == pytest.approx(summary.coverage)
        assert row["size"] == pytest.approx(summary.mean_size)


def test_where_coverage_is_lost_is_said() -> None:
    rows = polars.DataFrame(
        {
            "series": ["a", "a", "b"],
            "shift": ["clean", "wave", "wave"],
            "level": [0, 1, 2],
            "coverage": [0.5, 0.9, 0.25],
        }
    )
    words = lost_words(rows, 0.9)
    assert "below 0.90 in 1 of 2 cases" in words
    assert "the lowest is 0.25, b under wave, level 2" in words
    assert lost_words(rows.head(2), 0.9) == "No level of any shift has a coverage below 0.90."
    assert lost_words(rows.head(1), 0.9) == "Nothing was measured under shift."


@pytest.mark.end_to_end
def test_a_study_that_asks_for_sets_has_them_in_its_report(tmp_path: Path) -> None:
    do_runs(read_own(TEXT, "stripes.toml", ["conformal=0.1"]), tmp_path, Silent())
    run = RunKey(DEFAULT_VARIANT, "falcon", 0).folder(tmp_path)
    rows = polars.read_parquet(run / SETS_FILE)
    assert set(rows["kind"]) == set(CONFORMAL_KINDS)
    assert rows["coverage"].is_between(0, 1).all()
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "RAPS sets" in page
    assert "with a probability of 90%" in page
