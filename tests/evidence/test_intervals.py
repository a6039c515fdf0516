"""Intervals, tests and comparisons against SciPy, the plain loop and known truths."""

import numpy
import pytest
import scipy.stats
import torch
from sklearn.metrics import roc_auc_score

from falconcal.errors import UserError
from falconcal.evidence import (
    by_group,
    holm,
    interval,
    outlier_interval,
    paired_difference,
    rank_sum,
    signed_rank,
)
from falconcal.evidence.binned_errors import BINNED_ERRORS, inverted_test_interval
from falconcal.evidence.intervals import bootstrap_values, resample_one_by_one
from falconcal.evidence.rank_statistics import OUTLIER_FIGURES, RANK_DRAWS, outlier_draws
from falconcal.evidence.resampling import MOST_CELLS
from falconcal.metrics import METRICS, Metric, metrics_without, outlier_detection
from falconcal.metrics.calibration import classwise_calibration_error, rms_calibration_error
from falconcal.metrics.predictions import Predictions, Scores
from tests.helpers.calibrated_predictions import calibrated
from tests.helpers.made_predictions import two_class

# the other errors of calibration are resampled in the bins of the sample, the loop bins anew
AT_ONCE = [
    name
    for name, metric in METRICS.items()
    if metric.resampling in ("mean", "proportion", "bin_gaps", *RANK_DRAWS)
]
BINNED = [name for name, metric in METRICS.items() if metric.resampling in BINNED_ERRORS]


def some_predictions(count: int = 400, seed: int = 0) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, 4, generator=generator)
    noisy = (logits + 2 * torch.randn(count, 4, generator=generator)).argmax(1)
    return Predictions.from_logits(logits, noisy)


@pytest.mark.parametrize("name", METRICS)
def test_an_interval_holds_its_value_and_depends_on_the_seed_alone(name: str) -> None:
    data = some_predictions(120)
    first, again = (interval(data, name, resamples=100, seed=3) for _ in range(2))
    assert first == again
    assert first.value == pytest.approx(METRICS[name](data))
    assert first.low <= first.high
    wider = interval(data, name, resamples=100, seed=3, level=0.99)
    assert wider.high - wider.low >= first.high - first.low


@pytest.mark.parametrize("right", [True, False])
def test_where_all_or_none_are_right_the_accuracy_is_not_certain(right: bool) -> None:
    labels = torch.arange(30) % 2
    logits = torch.nn.functional.one_hot(labels if right else 1 - labels, 2).float()
    found = interval(Predictions.from_logits(logits, labels), "accuracy")
    exact = scipy.stats.binomtest(30 * right, 30).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    pairs = interval(Predictions.from_logits(logits, labels), "accuracy", clusters=labels)
    assert pairs.high - pairs.low > found.high - found.low  # two clusters say less than 30 examples


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", AT_ONCE)
def test_resamples_at_once_are_distributed_like_resamples_one_by_one(name: str) -> None:
    scores = some_predictions().scores()
    at_once = bootstrap_values(scores, name, 1500, seed=1)
    plain = resample_one_by_one(scores, METRICS[name], 1500, numpy.random.default_rng(2))
    assert scipy.stats.ks_2samp(at_once, plain).pvalue > 1e-3


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", AT_ONCE)
def test_cells_keep_the_distribution_of_large_data(name: str) -> None:
    scores = some_predictions(3 * MOST_CELLS).scores()
    at_once = bootstrap_values(scores, name, 600, seed=1)
    plain = resample_one_by_one(scores, METRICS[name], 300, numpy.random.default_rng(2))
    assert scipy.stats.ks_2samp(at_once, plain).pvalue > 1e-3


def test_the_interval_of_a_mean_is_scipys() -> None:
    data = some_predictions()
    ours = interval(data, "nll", resamples=4000)
    theirs = scipy.stats.bootstrap(
        (data.scores().nll.numpy(),), numpy.mean, method="percentile", n_resamples=4000,
        rng=numpy.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.1 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.1 * width)


@pytest.mark.parametrize("name", ["ece", "adaptive_ece"])
def test_clusters_stay_together_and_widen_the_interval(name: str) -> None:
    """Ten copies of each example are no more evidence than one."""
    data = some_predictions(60)
    copies = Predictions(data.log_probs.repeat(10, 1), data.labels.repeat(10))
    clusters = torch.arange(60).repeat(10)
    honest = interval(copies, name, resamples=200, clusters=clusters)
    alone = interval(data, name, resamples=200)
    naive = interval(copies, name, resamples=200)
    assert honest.high - honest.low == pytest.approx(alone.high - alone.low, rel=0.35)
    assert naive.high - naive.low < 0.6 * (honest.high - honest.low)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["accuracy", "nll", "brier"])
def test_intervals_of_means_cover_the_truth_as_often_as_they_say(name: str) -> None:
    truth = METRICS[name](calibrated(400_000, seed=99))
    found = [interval(calibrated(400, seed), name, resamples=300, seed=seed) for seed in range(200)]
    covered = numpy.mean([one.low <= truth <= one.high for one in found])
    assert 0.90 <= covered <= 0.99


@pytest.mark.parametrize("name", BINNED)
def test_the_residuals_of_a_sample_give_its_error(name: str) -> None:
    scores = some_predictions().scores()
    residuals = BINNED_ERRORS[METRICS[name].resampling].residuals(scores)
    plugged_in = {"rms_ce": rms_calibration_error(scores, debiased=False)}
    expected = plugged_in.get(name, METRICS[name](scores))
    assert residuals.norm(residuals.observed()) == pytest.approx(expected)


@pytest.mark.end_to_end
@pytest.mark.parametrize("gap", [0.0, 0.03])
def test_errors_of_calibration_are_covered_though_they_are_biased(gap: float) -> None:
    """Where no bin has an error, every sample shows one: the interval must reach down to 0."""
    found = [
        interval(calibrated(500, seed, gap), "ece", resamples=200, seed=seed) for seed in range(150)
    ]
    covered = numpy.mean([one.low <= gap <= one.high for one in found])
    assert covered >= 0.92
    assert all(one.value > 0 for one in found)


def test_one_residual_is_inverted_as_the_normal_distribution_says() -> None:
    """With one bin far from 0 the bounds are the usual ones: value plus and minus 1.96 errors."""
    generator = numpy.random.default_rng(0)
    observed, draws_ = numpy.array([0.3]), generator.normal(0.3, 0.02, (200_000, 1))
    low, high = inverted_test_interval(
        observed, draws_, 0.95, lambda values: numpy.abs(values).sum(-1)
    )
    assert low == pytest.approx(0.3 - 1.96 * 0.02, abs=5e-4)
    assert high == pytest.approx(0.3 + 1.96 * 0.02, abs=5e-4)


def test_a_function_of_scores_has_an_interval_too() -> None:
    data = some_predictions(100)
    found = interval(data, lambda scores: float(scores.nll.median()), resamples=100)
    assert found.low < found.value < found.high


@pytest.mark.end_to_end
@pytest.mark.parametrize("figure", OUTLIER_FIGURES)
def test_outlier_figures_of_resamples_are_those_of_scikit_learn(figure: str) -> None:
    inside, outside = some_predictions(150, seed=1), some_predictions(100, seed=2)
    surer = Predictions.from_logits(2 * inside.log_probs, inside.labels)
    found = outlier_interval(surer, outside, figure, resamples=300)  # type: ignore[arg-type]
    assert found.value == getattr(outlier_detection(surer, outside), figure)
    assert found.low < found.value < found.high
    plain = [
        getattr(outlier_detection(_resampled(surer, seed), _resampled(outside, -seed - 1)), figure)
        for seed in range(300)
    ]
    signals = [data.scores().confidence.numpy() for data in (surer, outside)]
    generator = numpy.random.default_rng(0)
    at_once = outlier_draws(signals[0], signals[1], figure, 1000, generator)  # type: ignore[arg-type]
    assert scipy.stats.ks_2samp(at_once, plain).pvalue > 1e-3


def _resampled(data: Predictions, seed: int) -> Scores:
    generator = torch.Generator().manual_seed(seed + 1000)
    return data.scores().take(torch.randint(len(data), (len(data),), generator=generator))


def test_signed_rank_is_scipys_with_an_effect_by_hand() -> None:
    first, second = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([0.8, 0.6, 0.4, 0.61])
    found = signed_rank(first, second)
    expected = scipy.stats.wilcoxon(first.double().numpy(), second.double().numpy())
    assert found.p_value == pytest.approx(expected.pvalue)
    # differences 0.1, 0.2, 0.3, -0.01: ranks 2, 3, 4 against 1 of 10
    assert found.effect == pytest.approx((2 + 3 + 4 - 1) / 10)
    assert signed_rank(first, first).p_value == 1
    with pytest.raises(UserError, match="same examples"):
        signed_rank(first, second[:2])


def test_rank_sum_is_scipys_with_cliffs_delta() -> None:
    first, second = torch.tensor([3.0, 4.0, 5.0]), torch.tensor([1.0, 2.0, 3.5])
    found = rank_sum(first, second)
    expected = scipy.stats.mannwhitneyu(first.numpy(), second.numpy())
    assert found.p_value == pytest.approx(expected.pvalue)
    pairs = [numpy.sign(a - b) for a in first.tolist() for b in second.tolist()]
    assert found.effect == pytest.approx(numpy.mean(pairs))
    area = roc_auc_score([1] * 3 + [0] * 3, torch.cat([first, second]))
    assert found.effect == pytest.approx(2 * area - 1)
    with pytest.raises(UserError, match="empty"):
        rank_sum(first, second[:0])


def test_holm_by_hand_and_against_scipys_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
    with pytest.raises(UserError, match="from 0 to 1"):
        holm([1.2])


def test_a_paired_difference_is_narrower_than_two_intervals() -> None:
    first = some_predictions()
    second = Predictions.from_logits(first.log_probs * 1.5, first.labels)
    paired = paired_difference(first, second, "nll")
    alone = [interval(data, "nll") for data in (first, second)]
    assert paired.value == pytest.approx(alone[0].value - alone[1].value)
    assert paired.high - paired.low < min(one.high - one.low for one in alone)
    assert paired.low <= paired.value <= paired.high
    with pytest.raises(UserError, match="same examples"):
        paired_difference(first, some_predictions(seed=1), "nll")


@pytest.mark.parametrize("name", metrics_without("all_classes"))
def test_a_method_does_not_differ_from_itself(name: str) -> None:
    data = some_predictions(80)
    same = paired_difference(data, data, name, resamples=50)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_groups_stand_worst_first() -> None:
    data = two_class([0.9] * 4 + [0.9] * 4, [True] * 4 + [True, False, False, False])
    groups = ["north"] * 4 + ["south"] * 4
    assert [group.name for group in by_group(data, groups, "accuracy")] == ["south", "north"]
    worst, best = by_group(data, groups, "ece")
    assert worst.name == "south"
    assert worst.interval.value == pytest.approx(0.9 - 0.25)
    assert (worst.examples, best.examples) == (4, 4)
    # north is timid by 0.1, south too sure by 0.65; the other way round for the sign
    assert [group.name for group in by_group(data, groups, "signed_gap")] == ["south", "north"]
    timid = two_class([0.6] * 4 + [0.9] * 4, [True] * 4 + [True] * 3 + [False])
    assert [group.name for group in by_group(timid, groups, "signed_gap")] == ["north", "south"]
    by_class = by_group(data, groups, "classwise_ece")
    assert by_class[0].interval.value == classwise_calibration_error(data.take(torch.arange(4, 8)))
    with pytest.raises(UserError, match="one group per example"):
        by_group(data, groups[:3], "ece")


def _least_probability(data: Predictions) -> float:
    return float(data.probs.amin())


def test_a_record_is_enough_for_intervals_differences_and_groups() -> None:
    """A metric that no table of this package knows, of scores and of all classes."""
    data = some_predictions(60)
    nearly = Metric(lambda scores: float((scores.confidence > 0.9).double().mean()), "nearly sure")
    surest = Metric(_least_probability, "least probability", needs=("labels", "all_classes"))
    for metric in (nearly, surest):
        found = interval(data, metric, resamples=50)
        assert found.low <= found.value == metric(data.scores() if metric is nearly else data)
        assert len(by_group(data, data.labels.tolist(), metric)) == 4
    assert paired_difference(data, data, nearly, resamples=50).value == 0
    with pytest.raises(UserError, match=r"least probability are not supported.*all classes"):
        paired_difference(data, data, surest)


def test_a_record_says_of_what_it_is_the_mean() -> None:
    with pytest.raises(UserError, match="values of each example"):
        Metric(_least_probability, "mean of what", resampling="mean")


def test_what_cannot_be_is_refused() -> None:
    data = some_predictions(20)
    with pytest.raises(UserError, match="Did you mean 'ece'"):
        interval(data, "eec")
    with pytest.raises(UserError, match="at least 2 resamples"):
        interval(data, "ece", resamples=1)
    with pytest.raises(UserError, match="level between 0 and 1"):
        interval(data, "ece", level=95)
    with pytest.raises(UserError, match="one cluster per example"):
        interval(data, "ece", clusters=torch.arange(3))
    unknown = Predictions.from_logits(torch.randn(5, 3), torch.full((5,), -1))
    assert interval(unknown, "entropy").value > 0
    with pytest.raises(UserError, match="true class"):
        interval(unknown, "ece")
    with pytest.raises(UserError, match="probabilities of all classes"):
        interval(data.scores(), "classwise_ece")
    with pytest.raises(UserError, match="not supported"):
        interval(data, "classwise_ece", clusters=torch.arange(20))
    with pytest.raises(UserError, match="Did you mean 'auroc'"):
        outlier_interval(data, data, "auroq")  # type: ignore[arg-type]
