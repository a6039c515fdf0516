"""Against other people's libraries, where they are right; where they are wrong, our value pinned.

Skipped where the extra ``peers`` is not installed: ``pip install -e '.[dev,peers]'``.
"""

import numpy
import pytest
import torch

from falconcal.metrics import (
    accuracy,
    brier_score,
    expected_calibration_error,
    maximum_calibration_error,
    negative_log_likelihood,
    smooth_calibration_error,
)
from falconcal.metrics.predictions import Predictions
from tests.helpers.made_predictions import two_class
from tests.helpers.small_data import reference

pytestmark = pytest.mark.filterwarnings("ignore")


def generic() -> tuple[torch.Tensor, torch.Tensor, Predictions]:
    """Return the authors' 5,000 predictions, none of whose confidences lies on an edge."""
    stored = reference("ece")
    labels = torch.from_numpy(stored["labels"])
    probs = torch.from_numpy(stored["logits"]).double().softmax(1)
    return probs, labels, Predictions.from_probabilities(probs, labels)


@pytest.mark.parametrize(("norm", "ours"), [("l1", "ece"), ("max", "mce")])
def test_torchmetrics_agrees_on_generic_data(norm: str, ours: str) -> None:
    functional = pytest.importorskip("torchmetrics.functional.classification")
    probs, labels, data = generic()
    theirs = functional.multiclass_calibration_error(probs, labels, 10, n_bins=10, norm=norm)
    metric = {"ece": expected_calibration_error, "mce": maximum_calibration_error}[ours]
    assert metric(data) == pytest.approx(theirs.item(), abs=1e-6)


def test_torchmetrics_hides_confidence_one_in_a_bin_of_its_own() -> None:
    """A wrong answer at 1.0 is judged apart from its neighbours: 0.367 where the truth is 0.3."""
    functional = pytest.importorskip("torchmetrics.functional.classification")
    data = two_class([1.0, 0.95, 0.95], [False, True, True])
    theirs = functional.multiclass_calibration_error(
        data.log_probs.exp(), data.labels, 2, n_bins=10, norm="l1"
    )
    ours = expected_calibration_error(data)
    assert ours == pytest.approx(abs(2 / 3 - 2.9 / 3))
    assert theirs.item() == pytest.approx((1 + 2 * 0.05) / 3, abs=1e-6)


def test_netcal_agrees_in_float64() -> None:
    metrics = pytest.importorskip("netcal.metrics")
    probs, labels, data = generic()
    theirs = metrics.ECE(10).measure(probs.numpy(), labels.numpy())
    assert expected_calibration_error(data) == pytest.approx(theirs, abs=1e-6)
    highest = metrics.MCE(10).measure(probs.numpy(), labels.numpy())
    assert maximum_calibration_error(data) == pytest.approx(highest, abs=1e-6)


def test_scikit_learn_agrees_on_proper_scores() -> None:
    from sklearn.metrics import accuracy_score, log_loss

    probs, labels, data = generic()
    assert accuracy(data) == pytest.approx(accuracy_score(labels, probs.argmax(1)))
    assert negative_log_likelihood(data) == pytest.approx(log_loss(labels, probs.numpy()))
    one_hot = numpy.eye(10)[labels.numpy()]
    assert brier_score(data) == pytest.approx(((probs.numpy() - one_hot) ** 2).sum(1).mean())


def test_relplot_agrees_on_smooth_ece() -> None:
    relplot = pytest.importorskip("relplot")
    probs, labels, data = generic()
    confidence, predicted = probs.max(1)
    theirs = relplot.smECE(f=confidence.numpy(), y=(predicted == labels).numpy().astype(float))
    assert smooth_calibration_error(data) == pytest.approx(theirs, abs=2e-3)
