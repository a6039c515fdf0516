"""Predictions in a notebook: their HTML, their chart, and their numbers for NumPy."""

import numpy
import pytest

import falconcal
from falconcal.drawing.record_html import record_html
from falconcal.evaluation import assess_together
from falconcal.metrics import Predictions, Scores
from tests.helpers.chart_rows import chart_rows

PROBABILITIES = [[0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.1, 0.9]]
LABELS = [0, 1, 1, 0]


def predictions() -> Predictions:
    return Predictions.from_probabilities(PROBABILITIES, LABELS)


def test_numpy_takes_predictions() -> None:
    assert numpy.asarray(predictions()).tolist() == PROBABILITIES
    assert numpy.array(predictions(), dtype=numpy.float32).dtype == numpy.float32


def test_predictions_show_how_right_and_how_sure_they_are() -> None:
    shown = predictions()._repr_html_()
    assert "4 predictions" in shown
    for name, value in {"accuracy": "0.5000", "mean confidence": "0.7500"}.items():
        assert f'{name}</td><td style="text-align: right">{value}' in shown


def test_predictions_without_labels_show_their_confidence_alone() -> None:
    shown = Predictions.from_probabilities(PROBABILITIES, [-1] * 4)._repr_html_()
    assert "accuracy" not in shown
    assert "mean confidence" in shown


def test_the_reliability_diagram_has_the_bins() -> None:
    values = chart_rows(predictions().plot())
    # each example has a bin of its own: confidences 0.6, 0.7, 0.8, 0.9
    assert [(row["confidence"], row["accuracy"], row["counts"]) for row in values] == [
        (0.6, 0.0, 1), (0.7, 1.0, 1), (0.8, 1.0, 1), (0.9, 0.0, 1),
    ]  # fmt: skip


def test_top_predictions_alone_have_no_nll() -> None:
    scores = Scores.from_top_predictions(LABELS, [0, 0, 1, 1], [0.8, 0.6, 0.7, 0.9])
    full = predictions()
    assert falconcal.expected_calibration_error(scores) == pytest.approx(
        falconcal.expected_calibration_error(full)
    )
    for metric in ("nll", "brier", "entropy"):
        with pytest.raises(falconcal.UserError, match="top predictions alone"):
            falconcal.METRICS[metric](scores)
    assert set(falconcal.METRICS) - set(falconcal.assess(scores).metrics) == {
        "nll", "brier", "entropy", "classwise_ece",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("confidence", "message"), [([0.5], "three of shape"), ([0.5] * 3 + [1.5], "from 0 to 1")]
)
def test_wrong_top_predictions_are_said(confidence: list[float], message: str) -> None:
    with pytest.raises(falconcal.UserError, match=message):
        Scores.from_top_predictions(LABELS, [0, 0, 1, 1], confidence)


def test_text_of_others_is_escaped() -> None:
    shown = record_html(["<i>"], ["<b>"], [["<script>", "\x1b[31m"]])
    assert "<i>" not in shown
    assert "<script>" not in shown
    assert "\x1b" not in shown


def test_a_comparison_shows_verdicts_and_differences() -> None:
    surer = ([[0.99, 0.01], [0.9, 0.1], [0.1, 0.9], [0.01, 0.99]], LABELS)
    both = assess_together({"first": predictions(), "surer": surer})
    shown = both._repr_html_()
    assert "first: " in shown
    assert shown.count("<tr>") == 1 + len(both.differences) == 5
    values = {row.metric: row.difference.value for row in both.differences}
    assert values["accuracy"] == 0.0
    truth = numpy.log([0.8, 0.4, 0.7, 0.1]) - numpy.log([0.99, 0.1, 0.9, 0.01])
    assert values["nll"] == pytest.approx(truth.mean())
