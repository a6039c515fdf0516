"""Figures of two classes, against scikit-learn and by hand."""

import math
from typing import Any

import numpy
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import precision_score, recall_score

from falconcal import Predictions
from falconcal.errors import UserError
from falconcal.metrics import (
    average_precision,
    positive_reliability,
    roc_auc,
    threshold_table,
)

RANDOM = numpy.random.default_rng(0)
POSITIVE = RANDOM.uniform(size=400)
TRUTH = (RANDOM.uniform(size=400) < POSITIVE**2).astype(int)


def predictions(positive: numpy.ndarray = POSITIVE, truth: numpy.ndarray = TRUTH) -> Predictions:
    probs = torch.from_numpy(numpy.stack([1 - positive, positive], 1))
    return Predictions(probs.log(), torch.from_numpy(truth))


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    yes, no = POSITIVE[TRUTH == 1], POSITIVE[TRUTH == 0]
    assert roc_auc(predictions()) == pytest.approx((yes[:, None] > no[None]).mean())


def test_average_precision_is_the_mean_over_positives_of_the_precision_at_their_rank() -> None:
    ranked = TRUTH[numpy.argsort(-POSITIVE)]
    precision = ranked.cumsum() / numpy.arange(1, 401)
    assert average_precision(predictions()) == pytest.approx(precision[ranked == 1].mean())


def test_the_curve_is_that_of_scikit_learn() -> None:
    curve = positive_reliability(predictions(), bins=8)
    frequency, probability = calibration_curve(TRUTH, POSITIVE, n_bins=8)
    numpy.testing.assert_allclose(curve.frequency, frequency)
    numpy.testing.assert_allclose(curve.probability, probability)
    assert sum(curve.count) == 400


def test_an_empty_bin_has_no_frequency() -> None:
    curve = positive_reliability(predictions(POSITIVE / 2), bins=4)
    assert curve.count[2:] == (0, 0)
    assert math.isnan(curve.frequency[3])


def test_thresholds_are_those_of_scikit_learn() -> None:
    for row in threshold_table(predictions(), thresholds=(0.2, 0.5, 0.9)):
        called = (row.threshold <= POSITIVE).astype(int)
        assert row.precision == pytest.approx(precision_score(TRUTH, called))
        assert row.recall == pytest.approx(recall_score(TRUTH, called))
        assert row.specificity == pytest.approx(recall_score(TRUTH, called, pos_label=0))
        assert row.called_positive == pytest.approx(called.mean())
        assert row.expected_precision == pytest.approx(POSITIVE[called == 1].mean())


def test_other_classes_are_refused() -> None:
    three = Predictions.from_logits(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    with pytest.raises(UserError, match="two classes, got 3"):
        roc_auc(three)
    with pytest.raises(UserError, match="one class alone"):
        average_precision(predictions(truth=numpy.ones(400, dtype=int)))


def test_arrays_are_taken_too() -> None:
    probs = numpy.stack([1 - POSITIVE, POSITIVE], 1)
    assert roc_auc(probs, TRUTH) == pytest.approx(roc_auc(predictions()))


@pytest.mark.parametrize(
    "metric", [roc_auc, average_precision, positive_reliability, threshold_table]
)
def test_the_positive_classs_probability_alone_will_do(metric: Any) -> None:
    positive, truth = (1 + POSITIVE) / 3, TRUTH  # no empty bin, whose NaN equals nothing
    expected = metric(predictions(positive, truth))
    for given in (positive, torch.from_numpy(positive), positive.tolist()):
        assert str(metric(given, truth)) == str(expected)
    assert str(metric((positive, truth))) == str(expected)
    with pytest.raises(UserError, match="probabilities"):
        metric(3 * positive, truth)  # logits are never guessed
