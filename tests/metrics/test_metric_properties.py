"""Metrics beyond the first six: values by hand, independent implementations, and properties."""

import math

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from sklearn.metrics import roc_auc_score
from torch import Tensor

from falconcal.errors import UserError
from falconcal.metrics import (
    METRICS,
    Accumulator,
    accuracy_at_coverage,
    adaptive_calibration_error,
    area_under_levels,
    area_under_risk_coverage,
    brier_decomposition,
    brier_score,
    classwise_calibration_error,
    confidence_by_class,
    confidence_histogram,
    equal_mass_curve,
    expected_calibration_error,
    maximum_calibration_error,
    outlier_detection,
    risk_coverage_curve,
    rms_calibration_error,
    signed_gap,
    smooth_calibration_error,
)
from falconcal.metrics.binning import bin_index
from falconcal.metrics.calibration import SMOOTH_CELLS, smooth_cell
from falconcal.metrics.predictions import Predictions
from tests.helpers.calibrated_predictions import calibrated
from tests.helpers.made_predictions import two_class

quick = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@some.composite
def predictions(draw: some.DrawFn) -> Predictions:
    """Draw predictions of any size, some of them saturated or rounded."""
    classes, count = draw(some.integers(2, 6)), draw(some.integers(1, 60))
    generator = torch.Generator().manual_seed(draw(some.integers(0, 2**31)))
    scale = draw(some.sampled_from([0.1, 1.0, 5.0, 1000.0]))
    probs = (torch.randn(count, classes, generator=generator).double() * scale).softmax(1)
    if draw(some.booleans()):
        probs = (probs * 10).round() / 10
        probs[:, 0] += 1 - probs.sum(1)
        probs = probs.clamp_min(0) / probs.clamp_min(0).sum(1, keepdim=True)
    labels = torch.randint(classes, (count,), generator=generator)
    return Predictions.from_probabilities(probs, labels)


@pytest.mark.end_to_end
@quick
@given(predictions())
def test_every_metric_stays_in_its_range(data: Predictions) -> None:
    for name, metric in METRICS.items():
        low, high = metric.limits
        assert low - 1e-9 <= metric(data) <= high + 1e-9, name


@pytest.mark.end_to_end
@quick
@given(predictions(), some.randoms(use_true_random=False))
def test_no_metric_depends_on_the_order_of_examples_or_classes(
    data: Predictions, draw: object
) -> None:
    generator = torch.Generator().manual_seed(draw.randint(0, 2**31))  # type: ignore[attr-defined]
    order = torch.randperm(len(data), generator=generator)
    classes = torch.randperm(data.log_probs.shape[1], generator=generator)
    shuffled = Predictions.from_probabilities(data.probs[order], data.labels[order])
    renamed = Predictions.from_probabilities(data.probs[:, classes], classes.argsort()[data.labels])
    for name, metric in METRICS.items():
        value = metric(data)
        same = pytest.approx(value, abs=1e-9)
        assert metric(shuffled) == same, f"{name} depends on the order of the examples"
        # which of two equal classes is predicted is a matter of order
        assert _ties(data.log_probs) or metric(renamed) == same, (
            f"{name} depends on the order of the classes, and no two share the first place"
        )


def _ties(log_probs: Tensor) -> bool:
    best = log_probs.topk(2, 1).values
    return bool((best[:, 0] == best[:, 1]).any())


@pytest.mark.end_to_end
@quick
@given(predictions(), some.integers(1, 20))
def test_parts_put_together_give_the_whole(data: Predictions, size: int) -> None:
    # probabilities, as the whole has them: a logarithm and back would break near ties
    parts = [
        Predictions.from_probabilities(*pair)
        for pair in zip(torch.split(data.probs, size), torch.split(data.labels, size), strict=True)
    ]
    whole, merged = Accumulator.of(data), Accumulator.over(parts)
    half = len(parts) // 2
    if half:
        merged = Accumulator.over(parts[half:]) + Accumulator.over(parts[:half])
    assert len(merged) == len(data)
    figures = merged.metrics()
    assert figures == pytest.approx(whole.metrics(), abs=1e-9)
    for name, value in figures.items():
        assert value == pytest.approx(METRICS[name](data), abs=1e-9), name


@pytest.mark.parametrize("name", ["ece", "adaptive_ece", "rms_ce", "smooth_ece", "mce"])
def test_calibrated_data_goes_to_zero_with_the_root_of_the_number(name: str) -> None:
    """Forty times the examples, a sixth of the error; the debiased one falls at least so.

    Smooth ECE chooses its width by the error itself and falls with the cube root.
    """
    few = numpy.mean([METRICS[name](calibrated(500, seed).scores()) for seed in range(20)])
    many = numpy.mean([METRICS[name](calibrated(20_000, seed).scores()) for seed in range(3)])
    assert many < few / (2.5 if name == "smooth_ece" else 3.5)
    assert many < 0.03


@pytest.mark.parametrize("name", ["ece", "adaptive_ece", "rms_ce", "smooth_ece", "signed_gap"])
def test_a_known_gap_is_found(name: str) -> None:
    value = METRICS[name](calibrated(40_000, gap=0.1).scores())
    assert value == pytest.approx(0.1, abs=0.01)


def test_adaptive_ece_by_hand_and_with_ties() -> None:
    data = two_class([0.6, 0.7, 0.8, 0.9], [True, False, True, True])
    # two bins of two: |1/2 - 0.65| and |1 - 0.85|
    assert adaptive_calibration_error(data, bins=2) == pytest.approx((0.15 + 0.15) / 2)
    tied = two_class([0.8] * 5 + [0.9], [True, False, True, False, True, True])
    assert equal_mass_curve(tied, bins=3).counts.tolist() == [5, 0, 1]


def test_equal_mass_bins_agree_with_quantiles_written_in_numpy() -> None:
    probs, labels = torch.randn(1000, 4).double().softmax(1), torch.randint(4, (1000,))
    data = Predictions.from_probabilities(probs, labels)
    confidence, predicted = (part.numpy() for part in probs.max(1))
    assert len(set(confidence)) == 1000  # no ties, which ours keeps together
    hits = (predicted == labels.numpy()).astype(float)
    order = numpy.argsort(confidence, kind="stable")
    parts = numpy.array_split(order, 10)
    gaps = numpy.array([hits[part].mean() - confidence[part].mean() for part in parts])
    assert adaptive_calibration_error(data) == pytest.approx(numpy.abs(gaps).mean(), abs=1e-9)
    plain = rms_calibration_error(data, 10, debiased=False)
    assert plain == pytest.approx(numpy.sqrt((gaps**2).mean()), abs=1e-9)


def test_maximum_error_and_signed_gap_by_hand() -> None:
    data = two_class([0.65, 0.65, 0.95], [True, False, False])
    assert maximum_calibration_error(data) == pytest.approx(0.95)
    assert signed_gap(data) == pytest.approx((0.65 + 0.65 + 0.95) / 3 - 1 / 3)


def test_rms_error_by_hand() -> None:
    data = two_class([0.8] * 4, [True, True, True, False])
    assert rms_calibration_error(data, 1, debiased=False) == pytest.approx(0.05)
    assert rms_calibration_error(data, 1) == 0  # 0.05^2 less 0.75 * 0.25 / 3 is below 0
    far = two_class([0.9] * 4, [True, False, False, False])
    expected = math.sqrt((0.9 - 0.25) ** 2 - 0.25 * 0.75 / 3)
    assert rms_calibration_error(far, 1) == pytest.approx(expected)


def test_debiasing_removes_what_chance_adds() -> None:
    plain = numpy.mean(
        [rms_calibration_error(calibrated(500, seed), debiased=False) for seed in range(40)]
    )
    debiased = numpy.mean([rms_calibration_error(calibrated(500, seed)) for seed in range(40)])
    assert debiased < plain / 2


def test_classwise_error_by_hand_with_a_class_that_never_comes() -> None:
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]], dtype=torch.float64)
    data = Predictions.from_probabilities(probs, torch.tensor([0, 1]))
    expected = (abs(0.5 - 0.7) + abs(0.5 - 0.2) + abs(0.0 - 0.1)) / 3
    assert classwise_calibration_error(data) == pytest.approx(expected)


def test_smooth_error_against_the_kernel_written_out() -> None:
    data = calibrated(300, gap=0.2)
    ours = smooth_calibration_error(data)
    confidence = data.log_probs.exp().max(1).values.numpy()
    residual = (data.labels == 0).numpy() - confidence
    points = (numpy.arange(SMOOTH_CELLS) + 0.5) / SMOOTH_CELLS

    def error(width: float) -> float:
        total = numpy.zeros(SMOOTH_CELLS)
        for mirror in (confidence, -confidence, 2 - confidence):  # reflected at 0 and 1
            distance = (points[:, None] - mirror[None]) / width
            total += (numpy.exp(-(distance**2) / 2) * residual).sum(1)
        return float(numpy.abs(total / (width * math.sqrt(2 * math.pi))).mean() / len(residual))

    assert error(ours) == pytest.approx(ours, abs=2e-3)


def test_brier_parts_add_up_and_tell_the_two_apart() -> None:
    data = Predictions.from_logits(torch.randn(500, 4), torch.randint(4, (500,)))
    parts = brier_decomposition(data)
    assert parts.score == pytest.approx(brier_score(data))
    assert abs(parts.within_bins) < 0.01
    shares = torch.bincount(data.labels, minlength=4) / 500
    assert parts.uncertainty == pytest.approx(float((shares * (1 - shares)).sum()), rel=1e-6)
    flat = Predictions.from_probabilities(shares.double().repeat(500, 1), data.labels)
    base = brier_decomposition(flat)
    assert base.reliability == pytest.approx(0, abs=1e-9)
    assert base.resolution == pytest.approx(0, abs=1e-9)


def test_risk_and_coverage_by_hand() -> None:
    data = two_class([0.9, 0.8, 0.7, 0.6], [True, False, True, False])
    curve = risk_coverage_curve(data)
    assert curve.risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert curve.coverage.tolist() == pytest.approx([0.25, 0.5, 0.75, 1])
    assert area_under_risk_coverage(data) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert accuracy_at_coverage(data, 0.5) == 0.5
    with pytest.raises(UserError, match="coverage above 0"):
        accuracy_at_coverage(data, 0.0)


def test_equal_confidences_share_their_risk() -> None:
    one = two_class([0.8, 0.8, 0.8], [True, False, True])
    other = two_class([0.8, 0.8, 0.8], [False, True, True])
    assert area_under_risk_coverage(one) == pytest.approx(area_under_risk_coverage(other))


@pytest.mark.parametrize("signal", ["confidence", "entropy"])
def test_outlier_detection_against_scikit_learn_and_by_hand(signal: str) -> None:
    inside = Predictions.from_logits(torch.randn(80, 5) * 4, torch.randint(5, (80,)))
    outside = Predictions.from_logits(torch.randn(60, 5), torch.full((60,), -1))
    found = outlier_detection(inside, outside, signal)  # type: ignore[arg-type]
    sign = 1 if signal == "confidence" else -1
    values = [sign * getattr(part.scores(), signal) for part in (inside, outside)]
    truth = [1] * 80 + [0] * 60
    assert found.auroc == pytest.approx(roc_auc_score(truth, torch.cat(values).numpy()))
    threshold = values[0].sort(descending=True).values[math.ceil(0.95 * 80) - 1]
    assert found.fpr_at_95 == pytest.approx((values[1] >= threshold).double().mean().item())
    assert outlier_detection(inside, inside, signal).auroc == pytest.approx(0.5)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="confidence or entropy"):
        outlier_detection(inside, outside, "margin")  # type: ignore[arg-type]


def test_confidence_by_class_and_its_histogram() -> None:
    data = two_class([0.6, 0.8, 0.9], [True, True, True])
    by_class = confidence_by_class(data, 3)
    assert by_class[0].item() == pytest.approx((0.6 + 0.8 + 0.9) / 3)
    assert by_class[1:].isnan().all()
    histogram = confidence_histogram(data, bins=10)
    assert histogram.sum() == pytest.approx(1)
    assert histogram[:5].sum() == 0


@pytest.mark.parametrize("bins", [1, 7, 10, 20, SMOOTH_CELLS])
def test_a_histogram_has_the_bins_of_everything_else(bins: int) -> None:
    edges = [number / 20 for number in range(11, 21)]
    data = two_class(edges, [True] * 10)
    index = bin_index(data.scores().confidence, bins)
    expected = torch.bincount(index, minlength=bins).double() / 10
    torch.testing.assert_close(confidence_histogram(data, bins), expected)


def test_a_histogram_closes_its_cells_on_the_right() -> None:
    """0.75 ends cell 14 of 20, counted from 0, and cell 1499 of 2000."""
    assert confidence_histogram(two_class([0.75], [True]), 20).argmax() == 14
    assert smooth_cell(torch.tensor([0.75])).item() == SMOOTH_CELLS * 3 // 4 - 1


def test_area_under_levels_by_hand() -> None:
    levels = [two_class([0.75] * 4, [True] * hits + [False] * (4 - hits)) for hits in (3, 2, 0)]
    assert [expected_calibration_error(level) for level in levels] == pytest.approx([0, 0.25, 0.75])
    assert area_under_levels(levels) == pytest.approx((0 / 2 + 0.25 + 0.75 / 2) / 2)


def test_accumulators_hold_the_same_memory_whatever_they_saw() -> None:
    def size(count: int) -> int:
        held = Accumulator.of(calibrated(count))
        parts = (held.totals, held.reliability, held.residuals, held.classwise, held.by_class)
        return sum(part.numel() * part.element_size() for part in parts)

    assert size(10) == size(10_000)


def test_accumulators_of_other_bins_do_not_mix() -> None:
    data = calibrated(10)
    with pytest.raises(UserError, match="same bins and classes"):
        _ = Accumulator.of(data) + Accumulator.of(data, bins=5)
    with pytest.raises(UserError, match="loader empty"):
        Accumulator.over([])


def test_what_needs_all_classes_says_so() -> None:
    with pytest.raises(UserError, match="probabilities of all classes"):
        classwise_calibration_error(calibrated(5).scores())
