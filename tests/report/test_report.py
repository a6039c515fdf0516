"""The report, on a small study whose figures can be checked by hand."""

import json
import re
from pathlib import Path

import polars
import pytest
import torch
from typer.testing import CliRunner

from falconcal.cli import app
from falconcal.errors import UserError
from falconcal.io.atomic import write_bytes, write_text
from falconcal.metrics import BINS, METRICS, reliability_curve
from falconcal.metrics.binning import bin_index
from falconcal.report import summary_table, write_report
from falconcal.report.charts import engine
from falconcal.report.charts.by_level import file_names
from falconcal.report.charts.chart_data import reliability_bins
from falconcal.report.confidence_cells import bin_expression
from falconcal.report.pages import report_page as page_module
from falconcal.report.results import load_results
from falconcal.report.tables.metric_means import means_by_metric
from tests.helpers.report_study import (
    CHOSEN_ON,
    SEEDS,
    TESTED,
    _scores,
    make_scores,
    make_study,
    write_run,
)

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return make_study(tmp_path / "digits")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with its report, for tests that only read."""
    directory = make_study(tmp_path_factory.mktemp("written") / "digits")
    write_report(directory)
    return directory


def test_summary_by_hand(study: Path) -> None:
    dropout, falcon = summary_table(study).to_dicts()
    assert (dropout["method"], falcon["method"]) == ("dropout", "falcon")
    assert dropout["series"] == "dropout"
    assert dropout["seeds"] == 2
    assert dropout["accuracy"] == pytest.approx(0.91)
    assert dropout["clean_ece"] == pytest.approx(0.04)
    assert dropout["clean_ece_deviation"] == pytest.approx(0.0)
    assert dropout["mean_micro_ece"] == pytest.approx(0.21)  # 0.20 and 0.22
    assert dropout["mean_micro_ece_deviation"] == pytest.approx(0.02 / 2**0.5)
    assert falcon["mean_micro_ece"] == pytest.approx(0.04)  # 0.03 and 0.05
    assert falcon["mean_macro_ece"] == pytest.approx(0.08)
    # 0.86 / 3 at level 2 of rotation, 0.86 / 2 at level 1 of the other two
    assert falcon["last_level_confidence"] == pytest.approx(0.86 * (1 / 3 + 1 / 2 + 1 / 2) / 3)
    assert falcon["training_seconds"] == pytest.approx(11.0)


@pytest.mark.end_to_end
def test_every_metric_of_the_rows_is_on_the_page(written: Path) -> None:
    found = means_by_metric(load_results(written))
    measured = ("accuracy", "ece", "nll", "brier", "entropy", "confidence")
    assert list(found) == [METRICS[name].heading for name in measured]
    # seeds 0.90 and 0.92; a level divides by 1 + level: rotation has two, noise and zoom have one
    shifted = 0.91 * ((1 / 2 + 1 / 3) / 2 + 1 / 2 + 1 / 2) / 3
    assert found["Accuracy"] == [("91.0%", f"{shifted:.1%}")] * 2
    page = (written / "report.html").read_text()
    assert all(f'<th scope="row">{heading}</th>' in page for heading in found)


def test_shifts_that_chose_settings_stand_apart(study: Path) -> None:
    dropout = summary_table(study).row(0, named=True)
    assert dropout["selection_micro_ece"] == pytest.approx(0.91)
    assert dropout["selection_macro_ece"] == pytest.approx(1.82)
    assert dropout["mean_micro_ece"] < 0.3


def test_a_shift_in_both_lists_is_not_a_tested_one(study: Path) -> None:
    content = json.loads((study / "study.json").read_text())
    content["shifts"].append("contrast")
    (study / "study.json").write_text(json.dumps(content))
    assert summary_table(study)["mean_micro_ece"][0] == pytest.approx(0.21)


def test_level_rows_do_not_enter_pooled_means(study: Path) -> None:
    rows = polars.read_parquet(study / "rows.parquet")
    stray = rows.filter(metric="micro_ece").with_columns(
        polars.lit(0, polars.Int64).alias("level"), polars.lit(9.0).alias("value")
    )
    polars.concat([rows, stray]).write_parquet(study / "rows.parquet")
    assert summary_table(study)["mean_micro_ece"][0] == pytest.approx(0.21)


def test_series_of_a_variant_is_named_after_both(study: Path) -> None:
    rows = polars.read_parquet(study / "rows.parquet")
    other = rows.filter(method="falcon").with_columns(variant=polars.lit("small"))
    polars.concat([rows, other]).write_parquet(study / "rows.parquet")
    (study / "runs" / "small").mkdir()
    (study / "runs" / "default" / "falcon").rename(study / "runs" / "small" / "falcon")
    for seed in SEEDS:
        write_run(study, "falcon", seed, TESTED + CHOSEN_ON)
    assert summary_table(study)["series"].to_list() == ["dropout", "falcon", "falcon (small)"]


@pytest.mark.end_to_end
def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    study = make_study(tmp_path / "one", seeds=(0,))
    assert summary_table(study)["accuracy_deviation"].to_list() == [None, None]
    assert "One seed per method" in write_report(study).read_text()
    assert "±" not in (study / "summary.md").read_text()


@pytest.mark.end_to_end
def test_study_without_selection_shifts(tmp_path: Path) -> None:
    study = make_study(tmp_path / "plain", chosen_on=())
    assert summary_table(study)["selection_micro_ece"].to_list() == [None, None]
    assert "used to choose settings" not in (write_report(study).read_text())
    assert "choose settings" not in (study / "summary.md").read_text()


@pytest.mark.end_to_end
def test_report_writes_page_summary_and_figures(written: Path) -> None:
    assert {file.name for file in (written / "figures").iterdir()} == {
        "accuracy-by-level.svg",
        "confidence-against-accuracy.svg",
        "confidence-by-level.svg",
        "cost-against-calibration.svg",
        "ece-by-level.svg",
        "entropy-by-level.svg",
        "method-against-method.svg",
        "micro-ece-by-shift.svg",
        "nll-by-level.svg",
        "reliability-by-shift.svg",
        "training-cost.svg",
        "training-history.svg",
    }
    summary = (written / "summary.md").read_text()
    assert "| dropout | 2 | 0.910 ± 0.014 | 0.040 ± 0.000 | 0.210 ± 0.014 |" in summary
    assert "| mean of tested shifts | 0.210 | 0.040 |" in summary
    assert (written / "figures" / "ece-by-level.svg").read_text().startswith("<svg")


@pytest.mark.end_to_end
def test_same_directory_gives_same_report(written: Path) -> None:
    first = (written / "report.html").read_bytes()
    assert write_report(written) == written / "report.html"
    assert (written / "report.html").read_bytes() == first


@pytest.mark.end_to_end
def test_everything_shown_is_escaped(tmp_path: Path) -> None:
    study = make_study(tmp_path / "sly", title=SCRIPT)
    content = json.loads((study / "study.json").read_text())
    (study / "study.json").write_text(json.dumps(content | {"note": {SCRIPT: [SCRIPT]}}))
    settings = study / "runs" / "default" / "falcon" / "seed-0" / "settings.json"
    settings.write_text(json.dumps({"settings": {"name": SCRIPT}}))
    history = settings.with_name("history.parquet")
    polars.read_parquet(history).with_columns(term=polars.lit(SCRIPT)).write_parquet(history)
    assert SCRIPT not in write_report(study).read_text()
    assert SCRIPT not in (study / "summary.md").read_text()
    assert SCRIPT not in (study / "figures" / "training-history.svg").read_text()


@pytest.mark.end_to_end
def test_page_loads_nothing(written: Path) -> None:
    text = (written / "report.html").read_text()
    elements = re.sub(r"(?s)(<script[^>]*>).*?</script>", r"\1</script>", text)
    loads = re.findall(r"""(?i)(?:src|href|data|action)\s*=\s*["']?([^"'\s>]+)""", elements)
    assert [load for load in loads if not load.startswith("data:image/png;base64,")] == []
    assert "http:" not in elements
    assert "https:" not in elements
    assert "url(" not in elements
    assert "@import" not in elements
    assert "default-src 'none'" in elements
    assert len(text) < 5_000_000


@pytest.mark.end_to_end
def test_charts_on_the_page_are_json_without_examples(written: Path) -> None:
    text = (written / "report.html").read_text()
    found = re.findall(r'(?s)<script type="application/json" data-chart[^>]*>(.*?)</script>', text)
    specifications = [json.loads(specification) for specification in found]
    assert len(specifications) == 12
    for specification in specifications:
        (values,) = specification["datasets"].values()
        assert 0 < len(values) < 200
        assert set(specification["data"]) == {"name"}


@pytest.mark.parametrize(
    "name",
    [
        "study.json",
        "rows.parquet",
        "runs/default/falcon/seed-1/settings.json",
        "runs/default/falcon/seed-1/run.json",
        "runs/default/falcon/seed-1/history.parquet",
        "runs/default/falcon/seed-1/scores.parquet",
    ],
)
@pytest.mark.parametrize("content", [None, b"", b"PAR1 not a table", b"\xff\xfe{"])
def test_missing_or_damaged_file_is_named(study: Path, name: str, content: bytes | None) -> None:
    file = study / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(name)):
        write_report(study)


def test_truncated_scores_are_named(study: Path) -> None:
    file = study / "runs" / "default" / "dropout" / "seed-0" / "scores.parquet"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"scores\.parquet"):
        write_report(study)


@pytest.mark.end_to_end
def test_runs_without_history_have_no_training_figure(study: Path) -> None:
    for file in study.rglob("history.parquet"):
        polars.read_parquet(file).clear().write_parquet(file)
    assert "training-history" not in write_report(study).read_text()


def test_study_without_shifts_is_refused(study: Path) -> None:
    (study / "study.json").write_text(json.dumps({"name": "digits", "shifts": []}))
    with pytest.raises(UserError, match=r"'shifts' in .*study\.json"):
        write_report(study)


def test_missing_run_is_named(study: Path) -> None:
    (study / "runs" / "default" / "falcon").rename(study / "elsewhere")
    with pytest.raises(UserError, match=r"falcon.seed-0"):
        summary_table(study)


def test_missing_column_is_named(study: Path) -> None:
    polars.read_parquet(study / "rows.parquet").drop("metric").write_parquet(study / "rows.parquet")
    with pytest.raises(UserError, match=r"'metric' in .*rows.parquet"):
        summary_table(study)


def test_run_without_a_shift_is_refused(study: Path) -> None:
    rows = polars.read_parquet(study / "rows.parquet")
    kept = rows.filter(~((polars.col("shift") == "zoom") & (polars.col("seed") == 1)))
    kept.write_parquet(study / "rows.parquet")
    with pytest.raises(UserError, match=r"zoom for dropout, seed 1"):
        summary_table(study)


TABLES = {"rows.csv", "summary.md", "summary.json", "comparisons.parquet"}


@pytest.mark.end_to_end
def test_tables_are_written_before_figures_and_survive_the_chart_engine(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {file.name for file in study.iterdir()}
    script = study.parent / "engine.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(engine, "PROCESS", script)
    answer = CliRunner().invoke(app, ["report", str(study), "--paper"], env={"COLUMNS": "200"})
    assert isinstance(answer.exception, UserError)
    assert "could not be drawn" in str(answer.exception)
    assert "Summary" in answer.output
    assert "Tables: " in answer.output
    assert {file.name for file in study.iterdir()} - there == {*TABLES, "paper"}


@pytest.mark.end_to_end
def test_a_failed_drawing_leaves_the_old_page_and_its_figures(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(study)
    drawn = [study / "report.html", *(study / "figures").iterdir()]
    before = {file: file.read_bytes() for file in drawn}
    content = json.loads((study / "study.json").read_text())
    (study / "study.json").write_text(json.dumps({**content, "title": "Other"}))
    monkeypatch.setattr(page_module, "_bundle", _fail)
    with pytest.raises(UserError, match=r"no scripts.*report\.html and figures are not"):
        write_report(study)
    assert {file: file.read_bytes() for file in drawn} == before
    assert "Other" in (study / "summary.md").read_text()


def _fail() -> None:
    raise engine.DrawingError("no scripts.")


def test_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "new" / "words.txt"
    write_text(file, "größer\n")
    assert file.read_bytes() == "größer\n".encode()

    def full(path: Path, _: Path) -> Path:
        raise OSError(f"no space for {path}")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_bytes(file, b"half")
    assert file.read_bytes() == "größer\n".encode()
    assert [path.name for path in file.parent.iterdir()] == ["words.txt"]


@pytest.mark.parametrize("shift", ["clean", *TESTED, *CHOSEN_ON])
def test_bins_equal_the_reliability_curve(study: Path, shift: str) -> None:
    found = reliability_bins(load_results(study)).filter(series="falcon", shift=shift)
    scores = polars.concat([make_scores(seed, TESTED + CHOSEN_ON) for seed in SEEDS])
    part = scores.filter(polars.col("shift").cast(polars.String).is_in(["clean", shift]))
    curve = reliability_curve(_scores(part))
    filled = [place for place in range(BINS) if curve.counts[place] > 0]
    assert found["bin"].to_list() == filled
    assert found["counts"].to_list() == curve.counts[filled].tolist()
    assert found["confidence"].to_list() == pytest.approx(curve.confidence[filled].tolist())
    assert found["accuracy"].to_list() == pytest.approx(curve.accuracy[filled].tolist())


def test_figures_of_like_names_have_files_of_their_own() -> None:
    names = file_names(["falcon", "falcon (a b)", "falcon (a-b)", "???"])
    assert list(names.values()) == ["falcon", "falcon-a-b", "falcon-a-b-again", "series"]


def test_bins_at_the_edges() -> None:
    edges = torch.linspace(0, 1, 11, dtype=torch.float64)
    near = torch.tensor([0.0, 5e-7, -5e-7, 2e-6, -2e-6, 1e-6], dtype=torch.float64)
    confidence = (edges[:, None] + near).flatten().clamp(0, 1)
    confidence = torch.cat([confidence, edges.float().double()])
    table = polars.DataFrame({"confidence": confidence.numpy()})
    for bins in (1, 7, 10):
        found = table.select(bin_expression(polars.col("confidence"), bins)).to_series().to_list()
        assert found == bin_index(confidence, bins).tolist()


def test_shift_of_no_known_class_has_no_diagram(study: Path) -> None:
    for seed in SEEDS:
        file = study / "runs" / "default" / "falcon" / f"seed-{seed}" / "scores.parquet"
        unknown = polars.when(polars.col("shift").cast(polars.String) == "zoom").then(-1)
        scores = polars.read_parquet(file)
        scores.with_columns(label=unknown.otherwise(polars.col("label"))).write_parquet(file)
    shifts = reliability_bins(load_results(study)).filter(series="falcon")["shift"]
    assert "zoom" not in shifts
    assert "noise" in shifts
