"""The records of the metrics: what is known of each stands there, and everything reads it."""

from pathlib import Path

import pytest
import torch

from falconcal.cli.catalogue_tables import CATALOGUE
from falconcal.data import Dataset
from falconcal.evaluation import assess, score_under_shift, scores_to_rows
from falconcal.evidence import interval, paired_difference
from falconcal.metrics import METRICS, POOLED, Metric, Predictions, Scores
from falconcal.report import write_score_page
from falconcal.report.pages.score_page import metric_rows
from tests.helpers.small_data import small_network

TABLE = {**METRICS, **POOLED}


@pytest.mark.parametrize("name", TABLE)
def test_a_record_is_whole(name: str) -> None:
    metric = TABLE[name]
    low, high = metric.limits
    assert metric.meaning
    assert (metric.better is None) == (metric.best is None)
    assert metric.best is None or low <= metric.best <= high
    # an end of the range is the best where higher or lower is better
    ends = {"higher": high, "lower": low}
    assert metric.best == ends.get(metric.better or "", metric.best)


@pytest.mark.parametrize("name", METRICS)
def test_perfect_predictions_have_the_best_value(name: str) -> None:
    labels = torch.arange(40) % 4
    perfect = Predictions.from_probabilities(torch.nn.functional.one_hot(labels, 4), labels)
    if METRICS[name].best is not None:
        assert METRICS[name](perfect) == pytest.approx(METRICS[name].best, abs=1e-3)


def share_of_sure(scores: Scores) -> float:
    """Share of examples with a confidence above 0.9."""
    return float((scores.confidence > 0.9).double().mean())


@pytest.mark.end_to_end
def test_one_entry_is_picked_up_everywhere(
    monkeypatch: pytest.MonkeyPatch, tiny: Dataset, tmp_path: Path
) -> None:
    monkeypatch.setitem(METRICS, "sure", Metric(share_of_sure, "share of sure answers"))
    assert CATALOGUE["metrics"]()["sure"].startswith("Share of examples with a confidence")
    data = Predictions.from_logits(3 * torch.randn(80, 3), torch.arange(80) % 3)
    found = assess(data, groups=["a", "b"] * 40, metric="sure")
    value = found.metrics["sure"]
    assert value.low is not None
    assert value.low <= value.value == share_of_sure(data.scores())
    assert [row[0] for row in metric_rows(found)].count("sure") == 1
    assert len(found.groups) == 2
    page = write_score_page(found, tmp_path / "page", title="made up").read_text()
    assert "Share of examples with a confidence above 0.9; lower is better" in page
    assert interval(data, "sure").value == value.value
    assert paired_difference(data, data, "sure", resamples=20).value == 0
    rows = scores_to_rows(score_under_shift(small_network(), tiny.test, []))
    assert rows.filter(metric="sure").height == 1
