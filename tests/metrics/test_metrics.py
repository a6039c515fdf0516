"""The metrics against the authors' code, hand-worked values and edge conventions."""

import math

import numpy
import pytest
import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.metrics import (
    METRICS,
    accuracy,
    brier_score,
    expected_calibration_error,
    macro_ece,
    mean_confidence,
    micro_ece,
    negative_log_likelihood,
    predictive_entropy,
    reliability_curve,
)
from falconcal.metrics.binning import bin_index
from falconcal.metrics.predictions import Predictions
from tests.helpers.made_predictions import two_class
from tests.helpers.small_data import reference


def many_class(confidence: float, classes: int) -> Tensor:
    """Return one row whose first class has the given probability and the rest share equally."""
    rest = (1 - confidence) / (classes - 1)
    return torch.tensor([[confidence] + [rest] * (classes - 1)], dtype=torch.float64)


def test_ece_matches_the_authors() -> None:
    stored = reference("ece")
    logits, labels = torch.from_numpy(stored["logits"]), torch.from_numpy(stored["labels"])
    predictions = Predictions.from_logits(logits, labels)
    assert expected_calibration_error(predictions) == pytest.approx(float(stored["ece"]), abs=1e-6)
    assert accuracy(predictions) == pytest.approx(float(stored["acc"]))


def test_ece_on_the_authors_edge_case() -> None:
    stored = reference("ece")
    labels = torch.from_numpy(stored["edge_onehot"].argmax(1))
    predictions = Predictions.from_logits(torch.from_numpy(stored["edge_logits"]), labels)
    ours = expected_calibration_error(predictions)
    assert ours == pytest.approx(float(stored["edge_ece"]), abs=1e-6)


@pytest.mark.parametrize("edge", range(1, 11))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_confidence_on_an_edge_falls_into_the_bin_below(edge: int, dtype: torch.dtype) -> None:
    on = torch.tensor([edge / 10], dtype=dtype)
    above = torch.tensor([min(1.0, edge / 10 + 1e-4)], dtype=dtype)
    assert bin_index(on, 10).item() == edge - 1
    assert bin_index(above, 10).item() == min(edge, 9)


def test_confidence_zero_falls_into_the_first_bin_and_one_into_the_last() -> None:
    assert bin_index(torch.tensor([0.0, 1.0]), 10).tolist() == [0, 9]


@pytest.mark.parametrize("bins", [1, 3, 10, 15, 100])
def test_every_edge_of_any_number_of_bins(bins: int) -> None:
    edges = torch.arange(1, bins + 1, dtype=torch.float64) / bins
    assert bin_index(edges, bins).tolist() == list(range(bins))
    assert bin_index(edges.float(), bins).tolist() == list(range(bins))


def test_edge_conventions_part_here() -> None:
    """Confidence 0.6 (wrong) and 0.65 (right): right-closed bins keep them apart.

    Right-closed: |0 - 0.6| / 2 + |1 - 0.65| / 2 = 0.475. Left-closed bins would put both into one:
    |0.5 - 0.625| = 0.125.
    """
    predictions = two_class([0.6, 0.65], [False, True])
    assert expected_calibration_error(predictions) == pytest.approx(0.475)


def test_confidence_one_counts_in_the_last_bin() -> None:
    """With a wrong answer at 1.0 and two right ones at 0.95, one bin gives |2/3 - 2.9/3| = 0.3.

    A hidden extra bin for 1.0 would give |0 - 1| / 3 + 2 |1 - 0.95| / 3 = 0.367.
    """
    predictions = two_class([1.0, 0.95, 0.95], [False, True, True])
    assert expected_calibration_error(predictions) == pytest.approx(0.3)


def test_float32_edges_give_the_float64_result() -> None:
    confidences, correct = [0.6, 0.7, 0.8, 0.9, 0.65, 0.75], [False, True] * 3
    exact = two_class(confidences, correct)
    rounded = Predictions.from_probabilities(exact.log_probs.exp().float(), exact.labels)
    ours = expected_calibration_error(rounded)
    assert ours == pytest.approx(expected_calibration_error(exact), abs=1e-6)


def test_one_example_and_one_class_present() -> None:
    assert expected_calibration_error(two_class([0.8], [True])) == pytest.approx(0.2)
    only_one = Predictions.from_probabilities(
        many_class(0.4, 5).repeat(3, 1), torch.zeros(3).long()
    )
    assert expected_calibration_error(only_one) == pytest.approx(0.6)
    assert accuracy(only_one) == 1


def test_perfect_and_hopeless_predictions() -> None:
    assert expected_calibration_error(two_class([1.0] * 4, [True] * 4)) == 0
    assert expected_calibration_error(two_class([1.0] * 4, [False] * 4)) == 1


def test_metrics_by_hand() -> None:
    predictions = two_class([0.8, 0.6], [True, False])
    assert accuracy(predictions) == 0.5
    nll = -(math.log(0.8) + math.log(0.4)) / 2
    assert negative_log_likelihood(predictions) == pytest.approx(nll)
    assert brier_score(predictions) == pytest.approx((2 * 0.2**2 + 2 * 0.6**2) / 2)
    entropy = -(
        0.8 * math.log(0.8) + 0.2 * math.log(0.2) + 0.6 * math.log(0.6) + 0.4 * math.log(0.4)
    )
    assert predictive_entropy(predictions) == pytest.approx(entropy / 2)
    assert mean_confidence(predictions) == pytest.approx(0.7)


def test_micro_lets_over_and_underconfidence_cancel_and_macro_does_not() -> None:
    levels = [
        two_class([0.75] * 2, [True] * 2).scores(),
        two_class([0.75] * 2, [False] * 2).scores(),
    ]
    assert micro_ece(levels) == pytest.approx(abs(0.5 - 0.75))
    assert macro_ece(levels) == pytest.approx((0.25 + 0.75) / 2)
    balanced = [
        two_class([0.75] * 3, [True] * 3).scores(),
        two_class([0.75], [False]).scores(),
    ]
    assert micro_ece(balanced) == pytest.approx(0)
    assert macro_ece(balanced) == pytest.approx(0.5)


def test_probability_zero_gives_entropy_zero_and_a_finite_nll() -> None:
    predictions = two_class([1.0], [False])
    assert predictive_entropy(predictions) == 0
    assert negative_log_likelihood(predictions) == pytest.approx(708.396, abs=1e-3)


def test_reliability_curve_against_numpy() -> None:
    generator = numpy.random.default_rng(0)
    confidences = generator.uniform(0.5, 1, 500)
    correct = generator.uniform(size=500) < confidences
    curve = reliability_curve(two_class(confidences.tolist(), correct.tolist()))
    for index in range(10):
        inside = (confidences > index / 10) & (confidences <= (index + 1) / 10)
        assert curve.counts[index] == inside.sum()
        if inside.any():
            assert curve.confidence[index] == pytest.approx(confidences[inside].mean())
            assert curve.accuracy[index] == pytest.approx(correct[inside].mean())
        else:
            assert curve.accuracy[index].isnan()


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_invariant_to_order_and_bounded(name: str) -> None:
    logits, labels = torch.randn(200, 4) * 3, torch.randint(4, (200,))
    order = torch.randperm(200)
    metric = METRICS[name]
    value = metric(Predictions.from_logits(logits, labels))
    again = metric(Predictions.from_logits(logits[order], labels[order]))
    assert again == pytest.approx(value)
    lowest, highest = metric.limits
    assert lowest <= value <= (math.log(4) if name == "entropy" else highest)
    assert math.isfinite(value)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_takes_examples_without_a_class_or_says_no(name: str) -> None:
    data = Predictions.from_logits(torch.randn(4, 3), torch.tensor([0, 1, 2, -1]))
    if "labels" not in METRICS[name].needs:
        assert math.isfinite(METRICS[name](data))
    else:
        with pytest.raises(UserError, match="true class"):
            METRICS[name](data)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_refuses_nothing_at_all(name: str) -> None:
    nothing = Predictions.from_logits(torch.zeros(0, 3), torch.zeros(0).long())
    with pytest.raises(UserError, match="at least one example"):
        METRICS[name](nothing)


def test_bins_below_one_are_refused() -> None:
    with pytest.raises(UserError, match="at least 1 bin"):
        expected_calibration_error(two_class([0.8], [True]), bins=0)
