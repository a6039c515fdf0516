"""The evidence of a report, against the library's own functions, SciPy and the summary."""

import json
import shutil
from pathlib import Path

import numpy
import polars
import pytest
import scipy.stats

from falconcal.errors import UserError
from falconcal.evaluation.score_rows import scores_by_level
from falconcal.evaluation.under_shift import CLEAN
from falconcal.evidence import (
    holm,
    interval,
    pooled_difference,
    pooled_interval,
    signed_rank,
)
from falconcal.metrics.predictions import Scores
from falconcal.report import summary_table, write_report
from falconcal.report.charts.matrix import matrix_cells
from falconcal.report.paper_tests import PaperTest, paper_tests, reference_of
from falconcal.report.results import load_results
from falconcal.report.study_evidence import (
    BEYOND_CHANCE,
    COMPARED,
    EVIDENCE_SCHEMA,
    EvidenceRow,
    StudyEvidence,
    gather_evidence,
    least_chance,
    resamples_for,
)
from falconcal.report.tables.comparison_tables import (
    chance,
    corrected_chance,
    difference_tables,
    interval_texts,
    verdict_on,
)
from falconcal.report.tables.headline_columns import HEADLINE
from tests.helpers.evidence_study import (
    EXAMPLES,
    SEEDS,
    SHARPNESS,
    SHIFTS,
    make_study,
    write_rows,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("evidence") / "study", tuple(SHARPNESS))


@pytest.fixture(scope="module")
def evidence(study: Path) -> StudyEvidence:
    return gather_evidence(load_results(study))


def ladders(study: Path, method: str) -> list[list[Scores]]:
    """Return every shift of every seed as its levels, the clean one first."""
    found = []
    for seed in SEEDS:
        file = study / "runs" / "default" / method / f"seed-{seed}" / "scores.parquet"
        parts = polars.read_parquet(file).with_columns(polars.col("shift").cast(polars.String))
        clean = scores_by_level(parts.filter(shift=CLEAN))[0]
        found += [
            [clean, *scores_by_level(parts.filter(shift=shift.name)).values()] for shift in SHIFTS
        ]
    return found


def row_of(evidence: StudyEvidence, **keys: str) -> dict[str, float]:
    return evidence.table.filter(polars.col("shift").is_null(), **keys).row(0, named=True)


@pytest.mark.end_to_end
def test_the_figures_are_those_of_the_summary(study: Path, evidence: StudyEvidence) -> None:
    for summary in summary_table(study).to_dicts():
        for column in HEADLINE[:-1]:  # all but the time
            found = row_of(evidence, kind="interval", figure=column.name, first=summary["series"])
            assert found["value"] == pytest.approx(summary[column.name], abs=1e-9)
            assert found["low"] < found["high"]
            assert (found["examples"], found["seeds"]) == (EXAMPLES, len(SEEDS))


@pytest.mark.end_to_end
@pytest.mark.parametrize("figure", ["micro_ece", "macro_ece", "last_level_confidence"])
def test_intervals_are_those_of_the_library(
    study: Path, evidence: StudyEvidence, figure: str
) -> None:
    name = figure if figure == "last_level_confidence" else f"mean_{figure}"
    found = row_of(evidence, kind="interval", figure=name, first="falcon")
    expected = pooled_interval(ladders(study, "falcon"), figure)
    bounds = (expected.value, expected.low, expected.high)
    assert (found["value"], found["low"], found["high"]) == pytest.approx(bounds, abs=1e-9)


def test_the_accuracy_of_one_seed_has_the_interval_of_accuracy(tmp_path: Path) -> None:
    small = make_study(tmp_path / "study", ("dropout", "falcon"))
    shutil.rmtree(small / "runs" / "default" / "dropout")
    shutil.rmtree(small / "runs" / "default" / "falcon" / "seed-1")
    write_rows(small)
    found = row_of(gather_evidence(load_results(small)), figure="accuracy", first="falcon")
    expected = interval(ladders_of_one(small), "accuracy", resamples=4000)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high), abs=0.02)


def ladders_of_one(study: Path) -> Scores:
    file = study / "runs" / "default" / "falcon" / "seed-0" / "scores.parquet"
    parts = polars.read_parquet(file).with_columns(polars.col("shift").cast(polars.String))
    return scores_by_level(parts.filter(shift=CLEAN))[0]


@pytest.mark.end_to_end
@pytest.mark.parametrize("figure", ["micro_ece", "macro_ece"])
def test_differences_are_those_of_the_library(
    study: Path, evidence: StudyEvidence, figure: str
) -> None:
    keys = {"figure": f"mean_{figure}", "first": "dropout", "second": "falcon"}
    found = row_of(evidence, kind="difference", **keys)
    expected = pooled_difference(ladders(study, "dropout"), ladders(study, "falcon"), figure)
    assert found["value"] == pytest.approx(expected.value)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    assert (found["p"], found["effect"]) == pytest.approx((expected.p_value, expected.effect))
    assert found["first_value"] - found["second_value"] == pytest.approx(found["value"])


@pytest.mark.end_to_end
def test_p_values_are_corrected_over_the_pairs_of_one_figure(evidence: StudyEvidence) -> None:
    for figure in COMPARED:
        rows = evidence.table.filter(kind="difference", figure=figure)
        pairs = rows.select("first", "second").rows()
        assert pairs == [("dropout", "falcon"), ("dropout", "mixup"), ("falcon", "mixup")]
        assert rows["p_holm"].to_list() == pytest.approx(holm(rows["p"].to_list()))


def values(study: Path, method: str, column: str, rungs: dict[str, list[int]]) -> numpy.ndarray:
    """Return one value per example and level, its mean over seeds, the plain way."""
    tables = []
    for seed in SEEDS:
        file = study / "runs" / "default" / method / f"seed-{seed}" / "scores.parquet"
        tables.append(polars.read_parquet(file).with_columns(polars.col("shift").cast(str)))
    keys = ["shift", "level", "example"]
    means = polars.concat(tables).group_by(keys).agg(polars.col(column).cast(float).mean())
    wanted = [
        means.filter(polars.col("level").is_in(levels), shift=shift)
        for shift, levels in rungs.items()
    ]
    return polars.concat(wanted).sort(keys)[column].to_numpy()


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("name", "column", "rungs"),
    [
        ("signed_rank_clean_confidence", "confidence", {CLEAN: [0]}),
        ("signed_rank_out_of_distribution_confidence", "confidence", {"lost": [1]}),
        ("rank_sum_nll_levels_6_to_9", "nll", {"offset": [6, 7]}),
    ],
)
def test_the_papers_tests_are_scipys(
    study: Path, evidence: StudyEvidence, name: str, column: str, rungs: dict[str, list[int]]
) -> None:
    rows = evidence.table.filter(kind="test", figure=name).to_dicts()
    assert [(row["first"], row["second"]) for row in rows] == [
        ("falcon", "dropout"),
        ("falcon", "mixup"),
    ]
    for row in rows:
        first, second = (values(study, row[one], column, rungs) for one in ("first", "second"))
        if name.startswith("signed"):
            expected = scipy.stats.wilcoxon(first, second).pvalue
        else:
            expected = scipy.stats.mannwhitneyu(first, second).pvalue
        assert row["p"] == pytest.approx(expected)
        medians = (numpy.median(first), numpy.median(second))
        assert (row["first_value"], row["second_value"]) == pytest.approx(medians)
        assert -1 <= row["effect"] <= 1
    assert [row["p_holm"] for row in rows] == pytest.approx(holm([row["p"] for row in rows]))


def test_a_test_without_its_levels_is_left_out(tmp_path: Path) -> None:
    small = make_study(tmp_path / "study", ("dropout", "falcon"))
    content = json.loads((small / "study.json").read_text())
    (small / "study.json").write_text(json.dumps(content | {"shifts": ["lost"]}))
    names = [test.name for test in gather_evidence(load_results(small)).tests]
    assert "rank_sum_nll_levels_6_to_9" not in names
    (small / "study.json").write_text(json.dumps(content | {"shifts": ["offset"]}))
    names = [test.name for test in gather_evidence(load_results(small)).tests]
    assert "signed_rank_out_of_distribution_confidence" not in names


def test_a_test_may_ask_for_examples_of_no_known_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = make_study(tmp_path / "study", ("dropout", "falcon"))
    content = json.loads((small / "study.json").read_text())
    (small / "study.json").write_text(json.dumps(content | {"shifts": ["offset"]}))
    unknown = polars.when(polars.col("shift").cast(polars.String) == "lost").then(-1)
    for file in small.rglob("scores.parquet"):
        scores = polars.read_parquet(file).sample(fraction=1, shuffle=True, seed=0)
        scores.with_columns(label=unknown.otherwise(polars.col("label"))).write_parquet(file)
    outliers = PaperTest("outliers", "Outliers", "", "confidence", (("lost", 1),), signed_rank)
    monkeypatch.setattr("falconcal.report.study_evidence.paper_tests", lambda _: (outliers,))
    table = gather_evidence(load_results(small)).table
    (test,) = table.filter(kind="test").to_dicts()
    assert (test["figure"], test["examples"]) == ("outliers", EXAMPLES)
    assert set(table["shift"].drop_nulls()) == {"offset"}


def test_without_the_reference_there_are_no_tests_of_the_paper(tmp_path: Path) -> None:
    results = load_results(make_study(tmp_path / "study", ("dropout", "mixup")))
    assert reference_of(results) == ""
    assert paper_tests(results) == ()


def test_the_study_says_which_method_is_the_reference(tmp_path: Path) -> None:
    small = make_study(tmp_path / "study", ("dropout", "falcon", "mixup"))
    content = json.loads((small / "study.json").read_text())
    (small / "study.json").write_text(json.dumps(content | {"report": {"reference": "mixup"}}))
    assert reference_of(load_results(small)) == "mixup"
    (small / "study.json").write_text(json.dumps(content | {"report": {"refrence": "mixup"}}))
    with pytest.raises(UserError, match=r"study\.json.*Did you mean 'reference'"):
        load_results(small)
    (small / "study.json").write_text(json.dumps(content | {"report": ["mixup"]}))
    with pytest.raises(UserError, match=r"study\.json.*a table \[report\]"):
        load_results(small)


@pytest.mark.end_to_end
def test_one_method_is_compared_with_nothing(tmp_path: Path) -> None:
    small = make_study(tmp_path / "study", ("falcon",))
    page, summary = write_report(small).read_text(), (small / "summary.md").read_text()
    assert set(polars.read_parquet(small / "comparisons.parquet")["kind"]) == {"interval"}
    assert "Method against method" not in page + summary
    assert "The paper's tests" not in page + summary
    assert "95 % intervals" in summary


@pytest.mark.parametrize("methods", range(2, 40))
def test_resamples_let_a_difference_stand_out_after_correction(methods: int) -> None:
    pairs = methods * (methods - 1) // 2
    assert pairs * 2 / (1 + resamples_for(methods)) < BEYOND_CHANCE


@pytest.mark.end_to_end
def test_the_order_of_stored_scores_does_not_matter(study: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "study"
    shutil.copytree(study, mixed)
    file = mixed / "runs" / "default" / "falcon" / "seed-1" / "scores.parquet"
    polars.read_parquet(file).sample(fraction=1, shuffle=True, seed=1).write_parquet(file)
    found, expected = (gather_evidence(load_results(one)).table for one in (mixed, study))
    assert found.equals(expected)


@pytest.mark.end_to_end
def test_runs_on_other_examples_are_refused(study: Path, tmp_path: Path) -> None:
    other = tmp_path / "study"
    shutil.copytree(study, other)
    file = other / "runs" / "default" / "mixup" / "seed-0" / "scores.parquet"
    scores = polars.read_parquet(file)
    scores.with_columns((2 - polars.col("label")).alias("label")).write_parquet(file)
    with pytest.raises(UserError, match=r"mixup.seed-0.*other labels"):
        gather_evidence(load_results(other))
    scores.filter(polars.col("shift").cast(polars.String) != "lost").write_parquet(file)
    with pytest.raises(UserError, match=r"scores of lost in .*mixup.seed-0"):
        gather_evidence(load_results(other))


@pytest.mark.end_to_end
def test_the_matrix_is_the_same_both_ways_round(evidence: StudyEvidence) -> None:
    cells = matrix_cells(evidence)
    assert len(cells) == len(COMPARED) * 3 * 2
    turned = {"row better": "row worse", "row worse": "row better"}
    seen = {(cell["figure"], cell["row"], cell["column"]): cell for cell in cells.to_dicts()}
    for (figure, row, column), cell in seen.items():
        other = seen[figure, column, row]
        assert (cell["low"], cell["high"]) == (-other["high"], -other["low"])
        assert turned.get(cell["verdict"], cell["verdict"]) == other["verdict"]
        assert (cell["opacity"] > 0) == (cell["p"] < BEYOND_CHANCE)


def test_verdicts_name_the_better_method() -> None:
    row: EvidenceRow = {"figure": "accuracy", "first": "a", "second": "b", "p_holm": 0.01}
    row |= {"value": 0.1, "low": 0.05, "high": 0.15, "seeds": 2}
    assert verdict_on(row) == "a better"
    assert verdict_on(row | {"low": -0.15, "high": -0.05}) == "b better"
    assert verdict_on(row | {"figure": "clean_ece"}) == "b better"
    assert verdict_on(row | {"p_holm": BEYOND_CHANCE}) == "within chance"
    assert verdict_on(row | {"seeds": 1}) == "one seed"
    assert verdict_on(row | {"seeds": 1, "p_holm": BEYOND_CHANCE}) == "within chance"
    assert (chance(0.0004), chance(0.0014), chance(1.0)) == ("< 0.001", "0.001", "1.000")


@pytest.mark.end_to_end
def test_a_p_value_at_the_floor_of_the_resampling_says_so(evidence: StudyEvidence) -> None:
    """With 999 resamples none below 0.002 can be seen; 15 pairs make 0.03 of it."""
    row: EvidenceRow = {"p": 2 / 1000, "p_holm": 15 * 2 / 1000}
    assert corrected_chance(row, 999) == "at most 0.030"
    assert corrected_chance(row | {"p": 0.003}, 999) == "0.030"
    floor = evidence.table.filter(kind="difference")["p"].min()
    assert floor == pytest.approx(least_chance(evidence.resamples))
    shown = [row for table in difference_tables(evidence) for row in table.rows]
    rows = evidence.table.filter(kind="difference").to_dicts()
    for row, cells in zip(rows, shown, strict=True):
        assert cells[5].startswith("at most ") == (row["p"] == floor)


@pytest.mark.end_to_end
def test_everything_stands_in_the_summary_and_on_the_page(
    study: Path, evidence: StudyEvidence
) -> None:
    page, summary = write_report(study).read_text(), (study / "summary.md").read_text()
    texts = interval_texts(evidence)
    assert len(texts) == len(SHARPNESS) * (len(HEADLINE) - 1)
    for text in texts.values():
        assert f"<small>{text}</small>" in page
        assert f"| {text} |" in summary
    for part in ("Method against method", "p (Holm)", "dropout less falcon", "falcon better"):
        assert part in page
        assert part in summary
    for test in evidence.tests:
        assert test.title in page
        assert f"### {test.title}" in summary
    stored = polars.read_parquet(study / "comparisons.parquet")
    assert stored.schema == polars.Schema(EVIDENCE_SCHEMA)
    assert stored.equals(evidence.table)
