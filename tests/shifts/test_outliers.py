"""Outliers: the contract of every set, their rows against the metrics, and the report of them."""

import json
import shutil
from dataclasses import asdict, fields
from pathlib import Path

import numpy
import polars
import pytest
import scipy.stats
import torch

from falconcal.data import Bounds, Dataset, Examples, Part
from falconcal.errors import UserError
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.evaluation.under_shift import evaluate, score_under_shift
from falconcal.evidence import signed_rank
from falconcal.evidence.pooled import drawn_counts
from falconcal.evidence.rank_statistics import OUTLIER_FIGURES, drawn_outlier_figures
from falconcal.metrics import (
    confidence_by_class,
    confidence_histogram,
    outlier_detection,
)
from falconcal.metrics.predictions import Predictions, Scores
from falconcal.models.predict import predict
from falconcal.report import write_report
from falconcal.report.charts.outlier_charts import confidence_of_classes, confidence_shares
from falconcal.report.results import load_results
from falconcal.shifts import OUTLIERS, SHIFTS, Outliers, find_outliers, outliers_from
from falconcal.studies.runner import do_runs
from tests.helpers.paths import STRIPES
from tests.helpers.small_data import small_network, stripes
from tests.helpers.small_studies import Silent
from tests.helpers.stripes import read_own_file

MADE = [name for name in OUTLIERS if name != "objectnet_outliers"]
STUDY = STRIPES


def all_of(outliers: Outliers, data: Part, size: int = 500, seed: int = 0) -> torch.Tensor:
    pairs = list(outliers.batches(data, size, seed))
    assert (torch.cat([labels for _, labels in pairs]) == -1).all()
    return torch.cat([inputs for inputs, _ in pairs])


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("shape", [(3, 28, 30), (40,), (20, 6)])
def test_contract_of_made_outliers(name: str, shape: tuple[int, ...]) -> None:
    bounds = Bounds(-1.0, 3.0)
    data = Examples(torch.rand(23, *shape) * 4 - 1, torch.zeros(23).long(), bounds)
    made = all_of(OUTLIERS[name], data)
    assert made.shape == data.inputs.shape
    assert made.dtype == data.inputs.dtype
    assert not torch.equal(made, data.inputs)
    bounds.check(made)
    assert torch.equal(all_of(OUTLIERS[name], data, size=4), made)
    assert not torch.equal(all_of(OUTLIERS[name], data, seed=1), made)


def test_each_kind_is_what_it_says() -> None:
    data = stripes(60)
    uniform, normal, constant, permuted = (all_of(OUTLIERS[name], data) for name in MADE)
    assert scipy.stats.kstest(uniform.flatten()[:5000], "uniform").pvalue > 1e-3
    inside = normal[(normal > 0) & (normal < 1)][:5000]
    cut = scipy.stats.truncnorm(-2, 2, 0.5, 0.25)
    assert scipy.stats.kstest(inside, cut.cdf).pvalue > 1e-3
    assert (constant.flatten(1).std(1) == 0).all()
    assert len(constant[:, 0, 0, 0].unique()) == 60
    torch.testing.assert_close(
        permuted.flatten(1).sort(1).values, data.inputs.flatten(1).sort(1).values
    )


def test_channels_of_a_permuted_pixel_stay_together() -> None:
    grey = torch.rand(5, 1, 8, 8)
    colour = Examples(torch.cat([grey, 1 - grey], 1), torch.zeros(5).long(), Bounds(0, 1))
    first, second = all_of(OUTLIERS["permuted_pixels"], colour).unbind(1)
    torch.testing.assert_close(first + second, torch.ones(5, 8, 8))


def test_any_dataset_of_the_same_shape_serves(tiny: Dataset) -> None:
    digits = find_outliers("digits")
    images = all_of(digits, tiny.test, size=100)
    assert images.shape == (397, 1, 28, 28)
    given = outliers_from("mine", stripes(7, seed=4))
    assert torch.equal(all_of(given, tiny.test), stripes(7, seed=4).inputs)
    assert (
        find_outliers("tests.helpers.stripes:load_stripes").name
        == "tests.helpers.stripes:load_stripes"
    )
    with pytest.raises(UserError, match=r"data's shape \(784,\), got \(1, 28, 28\)"):
        all_of(digits, Examples(torch.rand(3, 784), torch.zeros(3).long(), Bounds(0, 1)))
    with pytest.raises(UserError, match="in the range of the data"):
        all_of(digits, Examples(tiny.test.inputs, tiny.test.labels, Bounds(-1, 1)))
    with pytest.raises(UserError, match="Did you mean 'uniform_noise'"):
        find_outliers("uniform_nose")
    with pytest.raises(UserError, match=r"falconcal\.shifts\.Outliers"):
        find_outliers("tests.helpers.stripes:inverted")


def test_tokens_and_unbounded_data_are_refused() -> None:
    words = Examples(torch.ones(3, 5).long(), torch.zeros(3).long(), tokens=4)
    free = Examples(torch.rand(3, 5), torch.zeros(3).long())
    for data in (words, free):
        with pytest.raises(UserError, match="floating-point inputs and bounds"):
            all_of(OUTLIERS["uniform_noise"], data)
    others = Examples(torch.full((3, 5), 6), torch.zeros(3).long())
    with pytest.raises(UserError, match="tokens below 4, got 6"):
        all_of(outliers_from("other words", others), words)


def test_rows_of_outliers_equal_the_metrics_called_by_hand(tiny: Dataset) -> None:
    model, outside = small_network(), OUTLIERS["uniform_noise"]
    rows = evaluate(model, tiny.test, [SHIFTS["contrast"]], [outside])
    inputs = all_of(outside, tiny.test)
    inner = predict(model, tiny.test)
    outer = predict(model, Examples(inputs, torch.full((30,), -1)))
    found = dict(rows.filter(shift="uniform_noise").select("metric", "value").iter_rows())
    expected = {
        "confidence": float(outer.probs.amax(1).mean()),
        "entropy": float(outer.scores().entropy.mean()),
    }
    for signal in ("confidence", "entropy"):
        figures = asdict(outlier_detection(inner, outer, signal))
        expected |= {f"{signal}_{name}": value for name, value in figures.items()}
    assert found == pytest.approx(expected, abs=1e-6)
    assert set(rows.filter(shift="uniform_noise")["examples"]) == {30}


def test_scores_hold_sets_of_any_size_whatever_the_batches(tiny: Dataset) -> None:
    sets = [outliers_from("few", stripes(7, seed=4)), OUTLIERS["constant_images"]]
    whole, cut = (
        score_under_shift(small_network(), tiny.test, [SHIFTS["shear"]], sets, batch_size=size)
        for size in (500, 4)
    )
    assert whole["prediction"].equals(cut["prediction"])
    assert len(whole.filter(shift="few")) == 7
    assert whole.filter(polars.col("label") < 0)["nll"].is_nan().all()
    assert not scores_to_rows(whole).filter(shift="few").is_empty()
    with pytest.raises(UserError, match="different names"):
        score_under_shift(small_network(), tiny.test, [], [sets[0], sets[0]])
    with pytest.raises(UserError, match=r"falconcal\.OUTLIERS"):
        score_under_shift(small_network(), tiny.test, [], ["few"])  # type: ignore[list-item]


@pytest.mark.parametrize("figure", OUTLIER_FIGURES)
def test_drawn_figures_are_those_of_the_examples_taken(figure: str) -> None:
    torch.manual_seed(3)
    inside, outside = (
        Predictions.from_logits(torch.randn(count, 4) * scale, torch.zeros(count).long()).scores()
        for count, scale in ((80, 2.0), (50, 1.0))
    )
    taken = drawn_counts(80, 6, seed=0), drawn_counts(50, 6, seed=1)
    signals = inside.confidence.numpy(), outside.confidence.numpy()
    found = drawn_outlier_figures(*signals, *taken)[figure]  # type: ignore[index]
    for number in range(6):
        inner, outer = (
            scores.take(torch.from_numpy(numpy.repeat(numpy.arange(len(scores)), counts[number])))
            for scores, counts in zip((inside, outside), taken, strict=True)
        )
        expected = getattr(outlier_detection(inner, outer), figure)
        assert found[number] == pytest.approx(expected, abs=1e-12)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two methods, two seeds, a shift, FGSM and two sets of outliers."""
    folder = tmp_path_factory.mktemp("outliers")
    changes = [
        'shifts=["contrast", "fgsm"]',
        "selection_shifts=[]",
        'outliers=["uniform_noise", "digits"]',
        "seeds=2",
        "falcon.keep=last",
        "falcon.epochs=4",
        "dropout.epochs=4",
    ]
    do_runs(read_own_file(STUDY, changes), folder, Silent())
    write_report(folder)
    return folder


@pytest.mark.end_to_end
def test_a_study_names_its_outliers(stored: Path) -> None:
    rows = polars.read_parquet(stored / "rows.parquet")
    assert set(rows["shift"]) == {"clean", "contrast", "fgsm", "uniform_noise", "digits"}
    assert set(rows.filter(shift="digits")["examples"]) == {397}
    assert json.loads((stored / "study.json").read_text())["outliers"] == [
        "uniform_noise",
        "digits",
    ]
    for name in ("uniform_noise", "digits", "contrast"):
        assert (stored / "examples" / f"{name}.png").is_file()
    assert not (stored / "examples" / "fgsm.png").exists()


@pytest.mark.end_to_end
def test_the_report_shows_outliers(stored: Path) -> None:
    summary = (stored / "summary.md").read_text()
    page = (stored / "report.html").read_text()
    table = polars.read_parquet(stored / "comparisons.parquet")
    rows = polars.read_parquet(stored / "rows.parquet")
    found = table.filter(kind="interval", shift="digits", figure="confidence_auroc", first="falcon")
    seeds = rows.filter(method="falcon", shift="digits", metric="confidence_auroc")["value"]
    mean = sum(seeds) / len(seeds)
    assert found["value"].item() == pytest.approx(mean, abs=1e-6)
    assert found["low"].item() <= found["value"].item() <= found["high"].item()
    low, high = found["low"].item(), found["high"].item()
    assert f"{mean:.3f} ({low:.3f} to {high:.3f})" in summary
    assert "## Outliers" in summary
    assert 'id="outliers"' in page
    assert "confidence-by-predicted-class" in page
    for name in ("confidence-of-outliers", "confidence-by-predicted-class"):
        assert (stored / "figures" / f"{name}.svg").is_file()


@pytest.mark.end_to_end
def test_the_papers_test_on_outliers(stored: Path) -> None:
    table = polars.read_parquet(stored / "comparisons.parquet")
    found = table.filter(kind="test", figure="signed_rank_digits_confidence")
    means = []
    for method in ("falcon", "dropout"):
        seeds = [
            polars.read_parquet(
                stored / "runs" / "default" / method / f"seed-{seed}" / "scores.parquet"
            ).filter(shift="digits")["confidence"]
            for seed in range(2)
        ]
        means.append(torch.from_numpy((seeds[0] + seeds[1]).to_numpy() / 2))
    expected = signed_rank(*means)
    assert found["p"].item() == pytest.approx(expected.p_value)
    assert found["effect"].item() == pytest.approx(expected.effect)
    assert found["examples"].item() == 397


@pytest.mark.end_to_end
def test_figures_of_outliers_close_cells_on_the_right(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored, tmp_path / "stored")
    results = load_results(tmp_path / "stored")
    for run in results.runs:
        scores = polars.read_parquet(run.scores_file)
        edge = polars.lit(0.75, scores.schema["confidence"]).alias("confidence")
        scores.with_columns(edge).write_parquet(run.scores_file)
    shares = confidence_shares(results).filter(series="falcon", set="digits")
    assert shares.filter(share=1.0)["from"].to_list() == pytest.approx([0.7])


@pytest.mark.end_to_end
def test_figures_of_outliers_hold_what_the_metrics_say(stored: Path) -> None:
    results = load_results(stored)
    scores = polars.concat(
        polars.read_parquet(run.scores_file).with_columns(polars.lit(run.series).alias("series"))
        for run in results.runs
    ).filter(shift="digits", series="falcon")
    columns = [field.name for field in fields(Scores)]
    pooled = Scores(*(torch.from_numpy(scores[name].to_numpy().copy()) for name in columns))
    shares = confidence_shares(results).filter(series="falcon", set="digits")["share"]
    assert shares[:-1].to_list() == pytest.approx(confidence_histogram(pooled).tolist())
    classes = confidence_of_classes(results).filter(series="falcon", set="digits")
    expected = confidence_by_class(pooled, 3)
    for number, confidence in classes.select("class", "confidence").iter_rows():
        assert confidence == pytest.approx(expected[number].item())
    assert classes["even"][0] == pytest.approx(1 / 3)


@pytest.mark.end_to_end
def test_outliers_that_do_not_fit_are_found_before_training(tmp_path: Path) -> None:
    study = read_own_file(STUDY, ['outliers=["tests.helpers.stripes:load_table"]'])
    with pytest.raises(UserError, match="nothing is resized"):
        do_runs(study, tmp_path, Silent())
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UserError, match="unknown outliers 'noise'"):
        read_own_file(STUDY, ['outliers=["noise"]'])
    with pytest.raises(UserError, match="named twice"):
        read_own_file(STUDY, ['outliers=["digits", "digits"]'])
