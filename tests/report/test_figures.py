"""Distributions, recalibration and costs in the report, against NumPy and by hand."""

import json
from pathlib import Path
from typing import Any

import numpy
import polars
import pytest

from falconcal.errors import UserError
from falconcal.report import write_report
from falconcal.report.charts.by_level import NLL, level_figure
from falconcal.report.charts.cost_charts import calibration_costs, cost_figures
from falconcal.report.charts.distributions import (
    IN_DOMAIN,
    LOST,
    distribution_figure,
    distribution_groups,
    distribution_note,
    distribution_tables,
    distributions,
)
from falconcal.report.charts.figure import drawn as draw_files
from falconcal.report.charts.recalibration_charts import recalibrated, recalibration_figures
from falconcal.report.pages.report_page import sections
from falconcal.report.results import load_results
from falconcal.report.study_evidence import gather_evidence
from falconcal.report.tables.costs import Costs, cost_tables, costs_of
from tests.helpers import report_study
from tests.helpers.evidence_study import SEEDS, SHARPNESS, make_study

# processor seconds of training and of measuring, by method, seeds one after the other
SECONDS = {
    "dropout": ([8.0, 12.0], [4.0, 4.0]),
    "falcon": ([20.0, 30.0], [4.0, 6.0]),
    "ensemble": ([100.0, 150.0], [20.0, 20.0]),
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("figures") / "study", tuple(SHARPNESS))


def pooled(study: Path, method: str, shift: str, level: int) -> polars.DataFrame:
    """Return the scores of all seeds at one level."""
    folder = study / "runs" / "default" / method
    files = [folder / f"seed-{seed}" / "scores.parquet" for seed in SEEDS]
    scores = polars.concat([polars.read_parquet(file) for file in files])
    return scores.filter(polars.col("shift").cast(polars.String) == shift, level=level)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("group", "shift", "level"), [(IN_DOMAIN, "clean", 0), (LOST, "lost", 1)])
@pytest.mark.parametrize("method", SHARPNESS)
def test_quantiles_and_means_are_numpys(
    study: Path, method: str, group: str, shift: str, level: int
) -> None:
    found = distributions(load_results(study)).row(
        by_predicate=(polars.col("series") == method) & (polars.col("group") == group), named=True
    )
    scores = pooled(study, method, shift, level)
    shares = {"low": 5, "first": 25, "median": 50, "third": 75, "high": 95}
    for name, share in shares.items():
        expected = numpy.percentile(scores["confidence"].to_numpy(), share)
        assert found[name] == pytest.approx(expected, rel=1e-12)
    entropy = scores["entropy"].to_numpy().astype(float).mean()
    assert found["entropy"] == pytest.approx(entropy, rel=1e-9)
    assert found["accuracy"] == pytest.approx(scores["correct"].to_numpy().mean(), rel=1e-12)
    assert found["examples"] == len(scores)


@pytest.mark.end_to_end
def test_truly_out_of_distribution_is_what_leaves_accuracy_near_random(study: Path) -> None:
    results = load_results(study)
    accuracy = results.rows.filter(metric="accuracy", shift="lost", level=1)["value"].to_numpy()
    assert accuracy.mean() < 0.2
    # the last level of the other shift leaves more
    accuracy = results.rows.filter(metric="accuracy", shift="offset", level=7)["value"].to_numpy()
    assert accuracy.mean() > 0.2
    assert distribution_groups(results) == {IN_DOMAIN: (("clean", 0),), LOST: (("lost", 1),)}
    note = distribution_note(results)
    assert "last level: lost." in note
    assert f"{numpy.log(3):.2f} nats" in note


def test_a_study_that_loses_nothing_says_so(tmp_path: Path) -> None:
    results = load_results(report_study.make_study(tmp_path / "mild", seeds=(0,)))
    assert list(distribution_groups(results)) == [IN_DOMAIN]
    assert "No tested shift is truly out of distribution" in distribution_note(results)


@pytest.mark.end_to_end
def test_tables_hold_medians_and_entropies(study: Path) -> None:
    results = load_results(study)
    medians, entropies = distribution_tables(results, distributions(results))
    assert medians.heading == ["Method", "In domain", "Truly out of distribution"]
    clean, lost = (pooled(study, "falcon", *rung) for rung in (("clean", 0), ("lost", 1)))
    expected = [numpy.median(scores["confidence"].to_numpy()) for scores in (clean, lost)]
    assert medians.rows[1] == ["falcon", *(f"{value:.3f}" for value in expected)]
    expected = [scores["entropy"].to_numpy().astype(float).mean() for scores in (clean, lost)]
    assert entropies.rows[1] == ["falcon", *(f"{value:.3f}" for value in expected)]


def test_outliers_have_no_accuracy(tmp_path: Path) -> None:
    study = make_study(tmp_path / "outside", ("dropout",))
    report_study.make_outliers(study, "lost", ["offset"])
    found = distributions(load_results(study))
    assert found["group"].to_list() == [IN_DOMAIN, "lost"]
    assert found["accuracy"].is_null().to_list() == [False, True]


def record(study: Path, **changes: Any) -> None:
    """Write the seconds of all runs, and whatever else a test wants of them."""
    for method, (training, evaluation) in SECONDS.items():
        for seed in SEEDS:
            file = study / "runs" / "default" / method / f"seed-{seed}" / "run.json"
            if file.is_file():
                facts = {
                    "training_cpu_seconds": training[seed],
                    "evaluation_cpu_seconds": evaluation[seed],
                    "training_seconds": 2 * training[seed],
                    "evaluation_seconds": evaluation[seed],
                }
                file.write_text(json.dumps(facts | changes))


def costly(tmp_path: Path, methods: tuple[str, ...] = tuple(SECONDS)) -> Path:
    study = make_study(tmp_path / "costly", tuple(SHARPNESS))
    names = dict(zip(SHARPNESS, methods, strict=False))
    for old, new in names.items():
        folder = study / "runs" / "default"
        (folder / old).rename(folder / new)
    rows = polars.read_parquet(study / "rows.parquet").filter(polars.col("method").is_in(names))
    rows = rows.with_columns(polars.col("method").replace(names))
    rows.write_parquet(study / "rows.parquet")
    for file in study.glob("runs/default/ensemble/*/settings.json"):
        file.write_text(json.dumps({"settings": {"size": 4, "base": {"method": "adversarial"}}}))
    record(study)
    return study


def known(costs: Costs | None) -> Costs:
    assert costs is not None
    return costs


def test_costs_by_hand(tmp_path: Path) -> None:
    results = load_results(costly(tmp_path))
    costs = known(costs_of(results))
    assert (costs.plain, costs.members, costs.ensemble) == ("dropout", 4, "ensemble")
    assert costs.member == pytest.approx(125 / 4 / 10)
    (table,) = cost_tables(results, costs)
    # falcon: 25 s of 10 s; a member is 125 s / 4; 25 s at 10 W are 250 J of 3,600 J a Wh
    assert table.rows[1] == ["falcon", "25.0 s", "2.50", "0.80", "3.2 of 4", "0.069 Wh", "1.25"]
    assert table.rows[2][3:5] == ["4.00", "0.0 of 4"]
    training = costs.table.filter(series="falcon", phase="training").row(0, named=True)
    assert (training["low"], training["high"]) == (2.0, 3.0)


def test_members_are_counted_only_where_the_study_has_an_ensemble(tmp_path: Path) -> None:
    results = load_results(costly(tmp_path, ("dropout", "falcon")))
    costs = known(costs_of(results))
    assert (costs.members, costs.ensemble) == (0, None)
    (table,) = cost_tables(results, costs)
    measured = ["Training", "Times dropout", "Energy, about", "Measuring, times dropout"]
    assert table.heading == ["Method", *measured]
    assert table.rows[1] == ["falcon", "25.0 s", "2.50", "0.069 Wh", "1.25"]
    assert "ember" not in table.note
    drawn = json.dumps([figure.specification() for figure in cost_figures(
        results, gather_evidence(results), costs
    )])  # fmt: skip
    assert "ensemble" not in drawn


def test_without_the_plain_method_the_cheapest_is_the_unit(tmp_path: Path) -> None:
    costs = known(costs_of(load_results(costly(tmp_path, ("ensemble", "falcon")))))
    assert costs.plain == "falcon"


@pytest.mark.end_to_end
@pytest.mark.parametrize("changes", [{"accelerator": "a fast one"}, {"training_cpu_seconds": None}])
def test_where_processors_do_not_tell_the_clock_does(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    study = costly(tmp_path)
    record(study, **changes)
    results = load_results(study)
    costs = costs_of(results)
    if "accelerator" in changes:
        (table,) = cost_tables(results, costs)
        assert table.rows[1][1:3] == ["50.0 s", "2.50"]
        assert table.rows[1][5] == "n/a"
        assert "by the clock" in table.note
    else:  # no number, no table
        assert costs is None
        assert cost_tables(results, costs) == []


@pytest.mark.end_to_end
def test_costs_stand_beside_the_error_and_its_interval(tmp_path: Path) -> None:
    results = load_results(costly(tmp_path))
    evidence, costs = gather_evidence(results), known(costs_of(results))
    found = calibration_costs(evidence, costs.table).filter(series="falcon", phase="training")
    row = evidence.table.filter(
        polars.col("shift").is_null(), kind="interval", figure="mean_micro_ece", first="falcon"
    ).row(0, named=True)
    assert found.select("ece", "ece_low", "ece_high").row(0) == (
        row["value"],
        row["low"],
        row["high"],
    )
    assert [figure.name for figure in cost_figures(results, evidence, costs)] == [
        "training-cost",
        "cost-against-calibration",
    ]


def test_recalibrated_methods_stand_beside_their_base(tmp_path: Path) -> None:
    study = make_study(tmp_path / "again", tuple(SHARPNESS))
    assert recalibration_figures(load_results(study)) == []
    for seed in SEEDS:
        file = study / "runs" / "default" / "mixup" / f"seed-{seed}" / "run.json"
        file.write_text(json.dumps({"base": f"falcon, seed {seed}"}))
    results = load_results(study)
    assert recalibrated(results) == {"falcon": ["mixup"]}
    (figure,) = recalibration_figures(results)
    assert figure.name == "recalibration-falcon"
    (values,) = figure.specification()["datasets"].values()
    assert {row["series"] for row in values} == {"falcon", "mixup"}
    expected = results.rows.filter(series="mixup", shift="offset", level=3, metric="ece")["value"]
    (found,) = [
        row["mean"]
        for row in values
        if (row["series"], row["shift"], row["level"]) == ("mixup", "offset", 3)
    ]
    assert found == pytest.approx(expected.to_numpy().mean(), abs=1e-6)


@pytest.mark.end_to_end
def test_likelihoods_are_drawn_by_level(study: Path) -> None:
    results = load_results(study)
    (values,) = level_figure(results, NLL).specification()["datasets"].values()
    found = {
        row["level"]: row["mean"]
        for row in values
        if (row["series"], row["shift"]) == ("dropout", "offset")
    }
    for level in (1, 7):
        nll = pooled(study, "dropout", "offset", level)["nll"].to_numpy().astype(float)
        assert found[level] == pytest.approx(nll.mean(), abs=2e-6)


@pytest.mark.end_to_end
def test_every_figure_is_valid_vega_lite(tmp_path: Path) -> None:
    """What makes the page does not validate: it would take longer than all the rest."""
    study = costly(tmp_path)
    for seed in SEEDS:
        file = study / "runs" / "default" / "falcon" / f"seed-{seed}" / "run.json"
        facts = json.loads(file.read_text()) | {"base": f"dropout, seed {seed}"}
        file.write_text(json.dumps(facts))
    results = load_results(study)
    parts = sections(results, gather_evidence(results))
    drawn = {part.anchor for part in parts if part.figures}
    assert {"shifts", "certainty", "recalibration", "outside", "reliability", "cost"} <= drawn
    for figure in (figure for part in parts for figure in part.figures):
        figure.chart.to_dict(validate=True)  # raises what is wrong
        assert figure.specification() is figure.specification()


@pytest.mark.end_to_end
def test_figures_in_every_format(study: Path) -> None:
    figure = distribution_figure(load_results(study), distributions(load_results(study)))
    files = draw_files([figure], ["svg", "png", "pdf"])
    starts = {"svg": b"<svg", "png": b"\x89PNG\r\n", "pdf": b"%PDF-"}
    for ending, start in starts.items():
        assert files[f"confidence-distributions.{ending}"].startswith(start)


@pytest.mark.end_to_end
def test_only_formats_that_are_known(study: Path) -> None:
    with pytest.raises(UserError, match="unknown format of figures 'gif'"):
        write_report(study, ["png", "gif"])
    assert not (study / "figures").exists()


@pytest.mark.end_to_end
def test_names_are_escaped_in_what_is_new(tmp_path: Path) -> None:
    study = make_study(tmp_path / "sly", ("dropout", "falcon"))
    content = json.loads((study / "study.json").read_text())
    script = "<script>alert(1)</script>"
    (study / "study.json").write_text(json.dumps(content | {"shifts": ["offset", script]}))
    for file in [study / "rows.parquet", *study.glob("runs/*/*/*/scores.parquet")]:
        table = polars.read_parquet(file).with_columns(polars.col("shift").cast(polars.String))
        table.with_columns(polars.col("shift").replace("lost", script)).write_parquet(file)
    text = write_report(study, ["svg", "png", "pdf"]).read_text()
    assert "truly out of distribution" in text
    assert script not in text
    assert script not in (study / "summary.md").read_text()
    names = {file.stem for file in (study / "figures").iterdir()}
    for ending in ("svg", "png", "pdf"):
        assert {file.stem for file in (study / "figures").glob(f"*.{ending}")} == names
