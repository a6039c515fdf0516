"""The verdict in words, the ranking, and what one seed may not claim, on rows made by hand."""

import json
from pathlib import Path

import polars
import pytest

from falconcal.report import write_report
from falconcal.report.charts.headline_chart import headline_figure, paths
from falconcal.report.charts.matrix import matrix_cells
from falconcal.report.outcomes import ONE_SEED_NOTE, difference, outcome, rests_on_one_seed
from falconcal.report.pages.explorer import explorer_data
from falconcal.report.ranking import (
    MANY,
    RECALIBRATED,
    TRAINED,
    first_shown,
    group_of,
    ranked_series,
    telling_level,
    worst_shift,
)
from falconcal.report.results import Results, load_results
from falconcal.report.study_evidence import EVIDENCE_SCHEMA, StudyEvidence
from falconcal.report.tables.summary import make_summary
from falconcal.report.verdicts import answer, verdicts
from tests.helpers.report_study import MICRO, make_study


def evidence_of(*rows: tuple[str, float, float, float, int]) -> StudyEvidence:
    """Return made differences of dropout less falcon: figure, low, high, p and seeds."""
    table = [
        {
            "kind": "difference",
            "figure": figure,
            "first": "dropout",
            "second": "falcon",
            "value": (low + high) / 2,
            "low": low,
            "high": high,
            "p_holm": p,
            "seeds": seeds,
        }
        for figure, low, high, p, seeds in rows
    ]
    return StudyEvidence(polars.DataFrame(table, EVIDENCE_SCHEMA), (), "", 1000)


def beyond_and_within(seeds: int) -> StudyEvidence:
    """Under shift falcon is clearly lower, at home chance explains it."""
    return evidence_of(
        ("mean_micro_ece", 0.1, 0.2, 0.001, seeds), ("clean_ece", -0.01, 0.01, 0.9, seeds)
    )


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return load_results(make_study(tmp_path / "digits"))


def said(results: Results, evidence: StudyEvidence) -> dict[str, str]:
    return {one.series: one.words for one in verdicts(results, make_summary(results), evidence)}


def test_each_method_has_a_sentence(results: Results) -> None:
    # micro ECE of seed 0 is in MICRO, that of seed 1 is 0.02 more; clean ECE is 0.04 throughout
    assert said(results, beyond_and_within(2)) == {
        "falcon": (
            "under shift 0.04 against 0.21, beyond chance; at home 0.040 against 0.040, within "
            "chance; accuracy 91.0 % against 91.0 %; worst shift zoom, 0.07."
        ),
        "dropout": ("under shift 0.21; at home 0.04; accuracy 91.0 %; worst shift zoom, 0.31."),
    }
    assert answer(results, make_summary(results), beyond_and_within(2)) == (
        "falcon is best calibrated under shift: ECE 0.04 against 0.21 of dropout, beyond chance; "
        "accuracy 91.0 % against 91.0 %."
    )


def test_what_is_worse_is_said_to_be_worse(results: Results) -> None:
    worse = evidence_of(
        ("mean_micro_ece", -0.2, -0.1, 0.001, 2), ("clean_ece", 0.01, 0.02, 0.001, 2)
    )
    words = said(results, worse)["falcon"]
    assert "under shift 0.04 against 0.21, worse, beyond chance;" in words
    assert "at home 0.040 against 0.040, beyond chance;" in words
    (falcon, dropout) = verdicts(results, make_summary(results), worse)
    assert (falcon.standing, dropout.standing) == ("worse", None)


def test_where_the_plain_method_is_best_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MICRO, "falcon", dict.fromkeys(MICRO["falcon"], 0.7))
    results = load_results(make_study(tmp_path / "digits"))
    words = answer(results, make_summary(results), beyond_and_within(2))
    assert words.startswith("No method is better calibrated under shift than dropout: under shift")


def test_one_seed_is_never_called_or_coloured_beyond_chance(results: Results) -> None:
    one, several = beyond_and_within(1), beyond_and_within(2)
    assert "under shift 0.04 against 0.21, from one seed;" in said(results, one)["falcon"]
    assert "beyond chance" not in answer(results, make_summary(results), one)
    standing = verdicts(results, make_summary(results), one)[0].standing
    assert standing == "one seed"
    assert (matrix_cells(one)["opacity"] == 0).all()
    assert (matrix_cells(several)["opacity"] > 0).any()
    assert (rests_on_one_seed(one), rests_on_one_seed(several)) == (True, False)


def test_a_comparison_is_the_same_from_both_sides(results: Results) -> None:
    assert results.series == ("dropout", "falcon")
    evidence = beyond_and_within(2)
    seen = difference(evidence, "mean_micro_ece", "falcon", "dropout")
    assert (seen["first"], seen["low"], seen["high"]) == ("falcon", -0.2, -0.1)
    assert outcome(seen) == "better"
    assert outcome(difference(evidence, "mean_micro_ece", "dropout", "falcon")) == "worse"


def test_the_lowest_error_under_shift_comes_first(results: Results) -> None:
    assert ranked_series(results) == ["falcon", "dropout"]
    name, error = worst_shift(results, "falcon") or ("", 0.0)
    assert name == "zoom"
    assert error == pytest.approx(0.07)


def test_a_method_without_figures_comes_last(results: Results) -> None:
    rows = results.rows.filter(
        ~((polars.col("series") == "falcon") & (polars.col("metric") == "micro_ece"))
    )
    without = Results(results.directory, results.study, rows, results.runs)
    assert ranked_series(without) == ["dropout", "falcon"]
    assert worst_shift(without, "falcon") is None
    assert "worst shift" not in said(without, beyond_and_within(2))["falcon"]


def test_the_explorer_begins_where_the_methods_differ_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = load_results(make_study(tmp_path / "digits"))
    assert (
        telling_level(results)[0] == "zoom"
    )  # 0.30 and 0.06; contrast, further apart, is not tested
    monkeypatch.setitem(MICRO, "falcon", {**MICRO["falcon"], "noise": 0.9})
    results = load_results(make_study(tmp_path / "other"))
    assert telling_level(results)[0] == "noise"
    rows = results.rows.with_columns(
        polars.when(series="falcon", shift="rotation", level=1, metric="ece")
        .then(0.9)
        .when(series="falcon", shift="rotation", metric="micro_ece")
        .then(5.0)
        .otherwise(polars.col("value"))
        .alias("value")
    )
    moved = Results(results.directory, results.study, rows, results.runs)
    assert telling_level(moved) == ("rotation", 1)
    assert explorer_data(moved)["start"] == {"shift": "rotation", "level": 1}


def test_with_one_method_it_begins_where_that_is_worst(results: Results) -> None:
    alone = Results(
        results.directory,
        results.study,
        results.rows.filter(series="falcon"),
        tuple(run for run in results.runs if run.series == "falcon"),
    )
    assert telling_level(alone) == ("zoom", 1)
    assert answer(alone, make_summary(alone), evidence_of()) == (
        "falcon: under shift 0.04; at home 0.04; accuracy 91.0 %."
    )


def test_of_many_methods_a_few_stand_out_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(MANY):
        monkeypatch.setitem(MICRO, f"m{number}", dict.fromkeys(MICRO["falcon"], 0.001 * number))
    results = load_results(make_study(tmp_path / "many", seeds=(0,)))
    assert len(results.series) == MANY + 2
    assert first_shown(results) == ["m0", "m1", "m2", "dropout", "falcon"]
    assert explorer_data(results)["ranked"][0] == "m0"


def test_few_methods_are_all_shown(results: Results) -> None:
    assert first_shown(results) == []


def test_what_recalibrates_is_a_group_of_its_own(tmp_path: Path) -> None:
    study = make_study(tmp_path / "digits")
    for file in study.glob("runs/default/falcon/*/run.json"):
        file.write_text(json.dumps({"base": "dropout, seed 0"}))
    results = load_results(study)
    assert group_of(results, "dropout") == TRAINED
    assert group_of(results, "falcon") == RECALIBRATED


@pytest.mark.parametrize(
    ("recorded", "word"),
    [("image", "images"), ("text", "texts"), ("signal", "rows"), ("sequence", "sequences")],
)
def test_what_was_tested_has_its_own_word(tmp_path: Path, recorded: str, word: str) -> None:
    study = make_study(tmp_path / "digits")
    for file in study.glob("runs/*/*/*/run.json"):
        file.write_text(json.dumps({"inputs": recorded}))
    assert load_results(study).inputs == word


def test_runs_that_do_not_say_have_images_where_there_are_pictures(tmp_path: Path) -> None:
    study = make_study(tmp_path / "digits")
    assert load_results(study).inputs == "images"
    (study / "examples" / "rotation.png").unlink()
    assert load_results(study).inputs == "examples"


def test_the_headline_chart_follows_the_levels(results: Results) -> None:
    table = paths(results).filter(series="falcon")
    # 0.91 at home; a level divides by 1 + level: level 1 of three shifts, level 2 of rotation
    assert table["level"].to_list() == [0, 1, 2]
    assert table["end"].to_list() == ["clean", "between", "strongest"]
    assert table["accuracy"].to_list() == pytest.approx([0.91, 0.91 / 2, 0.91 / 3])
    assert table["confidence"].to_list() == pytest.approx([0.86, 0.43, 0.86 / 3])
    specification = headline_figure(results).specification()
    domains = {
        str(layer["encoding"][axis]["scale"]["domain"])
        for layer in specification["spec"]["layer"]
        if layer["mark"]["type"] == "line"
        for axis in ("x", "y")
    }
    assert domains == {"[0.2, 1]"}  # the same, so that the diagonal is where both are equal


@pytest.mark.end_to_end
def test_the_page_opens_with_the_verdict_and_has_the_sections_of_the_study(tmp_path: Path) -> None:
    study = make_study(tmp_path / "one", seeds=(0,))
    page, summary = write_report(study, ()).read_text(), (study / "summary.md").read_text()
    places = [page.index(f'id="{name}"') for name in ("verdict", "explorer", "summary", "guide")]
    assert places == sorted(places)
    assert ONE_SEED_NOTE in page
    assert ONE_SEED_NOTE in summary
    assert 'class="better"' not in page
    assert "40 test images" in page
    # no ensemble, nothing truly out of distribution, no outliers, no variants
    for absent in ("Members", "truly out of distribution", 'id="outliers"', 'id="variants"'):
        assert absent not in page
    assert "The paper&#39;s tests" in page or "The paper's tests" in page


@pytest.mark.end_to_end
def test_without_the_reference_the_page_has_no_tests_of_the_paper(tmp_path: Path) -> None:
    study = make_study(tmp_path / "digits")
    content = json.loads((study / "study.json").read_text())
    (study / "study.json").write_text(json.dumps(content | {"report": {"reference": "nobody"}}))
    page = write_report(study, ()).read_text()
    assert "paper's tests" not in page + (study / "summary.md").read_text()
    assert 'id="tests"' not in page
