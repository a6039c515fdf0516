"""Differences of errors: normal theory in closed form, the root finder, methods that are alike."""

import numpy
import pytest
import scipy.stats
import torch

from falconcal.evidence import paired_difference
from falconcal.evidence.binned_errors import BINNED_ERRORS, inverted_test_interval
from falconcal.evidence.comparisons import error_figures
from falconcal.evidence.differences import (
    ErrorBounds,
    Estimate,
    bootstrap_p_value,
    difference_of,
    error_bounds,
    error_figure,
    interval_of,
    mover_interval,
)
from falconcal.metrics import METRICS
from falconcal.metrics.predictions import Predictions, Scores


def size(residuals: numpy.ndarray) -> numpy.ndarray:
    sizes: numpy.ndarray = numpy.abs(residuals).sum(-1)
    return sizes


def normal_bounds(mean: float, error: float) -> ErrorBounds:
    """Return the usual bounds of a normal estimate: it, less and plus z standard errors."""
    chances = numpy.array([0.001, 0.01, 0.05, 0.1, 0.5, 1.0])
    reach = error * scipy.stats.norm.isf(chances / 2)[None]
    return ErrorBounds(chances, mean - reach, mean + reach)


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.8])
def test_two_normal_estimates_differ_as_the_normal_distribution_says(correlation: float) -> None:
    low, high = mover_interval(normal_bounds(0.3, 0.02), normal_bounds(0.25, 0.01), correlation)
    error = numpy.sqrt(0.02**2 + 0.01**2 - 2 * correlation * 0.02 * 0.01)
    reach = error * scipy.stats.norm.isf(normal_bounds(0, 1).chances / 2)
    assert low == pytest.approx(0.05 - reach)
    assert high == pytest.approx(0.05 + reach)


def test_bounds_that_lean_are_joined_by_hand() -> None:
    chances = numpy.array([0.05, 1.0])
    first = ErrorBounds(chances, numpy.array([[0.06, 0.10]]), numpy.array([[0.13, 0.10]]))
    second = ErrorBounds(chances, numpy.array([[0.01, 0.05]]), numpy.array([[0.08, 0.05]]))
    low, high = mover_interval(first, second, 0.0)
    # 0.05 less the root of 0.04^2 + 0.03^2, and plus that of 0.03^2 + 0.04^2
    assert (low[0], high[0]) == pytest.approx((0.0, 0.1))
    assert (low[1], high[1]) == pytest.approx((0.05, 0.05))


def test_the_interval_holds_every_pair_of_spreads() -> None:
    chances = numpy.array([0.05, 1.0])
    exact = numpy.array([[0.1, 0.1], [0.3, 0.3]])
    low, high = mover_interval(
        ErrorBounds(chances, exact, exact), ErrorBounds(chances, exact[:1], exact[:1]), 0.0
    )
    assert (low[0], high[0]) == pytest.approx((0.0, 0.2))


def residuals_of(means: list[float], seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
    observed = numpy.array(means)
    generator = numpy.random.default_rng(seed)
    return observed, observed + generator.normal(0, 0.01, (2000, len(means)))


@pytest.mark.parametrize("means", [[0.2], [0.0, 0.01, -0.01], [0.05, 0.0, 0.0], [0.03, -0.04]])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_bounds_at_all_chances_are_those_of_the_root_finder(
    means: list[float], level: float
) -> None:
    observed, drawn = residuals_of(means)
    found = interval_of(error_figure(0.0, observed, drawn, size, level))
    expected = inverted_test_interval(observed, drawn, level, size)
    assert (found.low, found.high) == pytest.approx(expected, abs=5e-4)


def test_bounds_narrow_as_the_chance_of_missing_the_truth_grows() -> None:
    bounds = error_bounds(*residuals_of([0.05, 0.0, 0.0]), size, 0.95)
    assert bounds.low.shape == bounds.high.shape == (3, len(bounds.chances))
    assert (numpy.diff(bounds.low, axis=1) >= 0).all()
    assert (numpy.diff(bounds.high, axis=1) <= 0).all()
    assert bounds.low[:, -1] == pytest.approx(bounds.high[:, -1])
    assert bounds.chances[0] == pytest.approx(2 / 2001)
    assert numpy.isclose(bounds.chances, 0.05).any()


def test_the_p_value_of_one_bin_is_that_of_the_normal_distribution() -> None:
    """Far from 0 an error of one bin is normal, and paired draws carry their correlation."""
    generator = numpy.random.default_rng(0)
    covariance = 1e-4 * numpy.array([[1, 0.5], [0.5, 1]])
    drawn = generator.multivariate_normal([0.30, 0.28], covariance, 50_000)
    figures = [
        error_figure(mean, numpy.array([mean]), draws[:, None], size, 0.95)
        for mean, draws in zip((0.30, 0.28), drawn.T, strict=True)
    ]
    found = difference_of(*figures)
    assert (found.low, found.high) == pytest.approx((0.02 - 0.0196, 0.02 + 0.0196), abs=4e-4)
    expected = 2 * scipy.stats.norm.sf(2)  # the standard error of the difference is 0.01
    assert expected * 0.9 <= found.p_value <= expected * 1.2


def test_the_p_value_says_whether_the_interval_leaves_out_zero() -> None:
    for seed in range(20):
        generator = numpy.random.default_rng(seed)
        first, second = (
            error_figure(
                0.0, *residuals_of(list(generator.normal(0, 0.03, 3)), seed + k), size, 0.9
            )
            for k in (100, 200)
        )
        found, turned = difference_of(first, second), difference_of(second, first)
        assert (found.p_value <= 0.1 + 1e-9) == (found.low > 0 or found.high < 0)
        assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
        assert turned.p_value == found.p_value


def test_chance_by_hand() -> None:
    # 1 of 9 draws lies below 0: twice (1 + 1) of (1 + 9)
    assert bootstrap_p_value(numpy.array([-1.0, *range(1, 9)])) == pytest.approx(0.4)
    assert bootstrap_p_value(numpy.arange(1.0, 100.0)) == pytest.approx(0.02)
    assert bootstrap_p_value(-numpy.arange(1.0, 100.0)) == pytest.approx(0.02)
    assert bootstrap_p_value(numpy.zeros(9)) == 1
    nothing = difference_of(Estimate(0.1, numpy.full(9, 0.1)), Estimate(0.0, numpy.zeros(9)))
    assert nothing.effect is None


def test_a_method_that_never_errs_has_an_error_of_zero() -> None:
    nothing = error_figure(0.0, numpy.zeros(2), numpy.zeros((2000, 2)), size, 0.95)
    assert (interval_of(nothing).low, interval_of(nothing).high) == (0, 0)
    observed, drawn = residuals_of([0.2])
    erring = error_figure(0.2, observed, drawn, size, 0.95)
    found, alone = difference_of(erring, nothing), interval_of(erring)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high))


def answers(lowest: float, error: float, seed: int, examples: int = 500) -> Scores:
    """Return a method whose confidences are even up to 1, each too high by an error."""
    generator = torch.Generator().manual_seed(seed)
    confidence, luck = torch.rand(2, examples, generator=generator, dtype=torch.float64)
    confidence = lowest + (1 - lowest) * confidence
    probabilities = ((1 - confidence) / 4)[:, None].repeat(1, 5)
    wrong = (luck >= confidence - error).long()
    probabilities[torch.arange(examples), wrong] = confidence
    labels = torch.zeros(examples, dtype=torch.long)
    return Predictions.from_probabilities(probabilities, labels).scores()


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if metric.resampling in BINNED_ERRORS]
)
def test_paired_draws_are_distributed_like_those_of_a_plain_loop(name: str) -> None:
    first, second = answers(0.9, 0.0, seed=1), answers(0.2, 0.1, seed=2)
    residuals = [
        BINNED_ERRORS[METRICS[name].resampling].residuals(scores) for scores in (first, second)
    ]
    figures = error_figures(first, second, METRICS[name], 0.95, 1500, 0, None)
    generator = numpy.random.default_rng(1)
    plain = []
    for _ in range(1500):
        chosen = generator.integers(len(first), size=len(first))
        sums = [
            numpy.bincount(one.index[chosen], one.each[chosen], one.bins) / len(first)
            for one in residuals
        ]
        plain.append([one.norm(part) for one, part in zip(residuals, sums, strict=True)])
    for figure, loop in zip(figures, numpy.array(plain).T, strict=True):
        assert scipy.stats.ks_2samp(figure.resampled, loop).pvalue > 1e-3
    ours = numpy.array([figure.resampled for figure in figures])
    expected = numpy.corrcoef(numpy.array(plain).T)[0, 1]
    assert numpy.corrcoef(ours)[0, 1] == pytest.approx(expected, abs=0.12)
    assert figures[0].value == pytest.approx(METRICS[name](first))


@pytest.mark.end_to_end
def test_a_sure_and_a_wide_method_without_error_are_not_told_apart() -> None:
    """Percentiles of the paired bootstrap call the wide one worse nearly always."""
    found = []
    for seed in range(150):
        sure, wide = answers(0.9, 0.0, seed), answers(0.2, 0.0, seed + 1000)
        found.append(paired_difference(sure, wide, "ece", resamples=200, seed=seed))
    assert numpy.mean([one.low > 0 or one.high < 0 for one in found]) <= 0.08
    assert numpy.mean([one.value < 0 for one in found]) > 0.95


def test_a_large_difference_is_told_apart() -> None:
    found = [
        paired_difference(answers(0.5, 0.0, seed), answers(0.5, 0.2, seed), "ece", resamples=200)
        for seed in range(20)
    ]
    assert all(one.high < 0 for one in found)
    assert numpy.mean([one.low <= -0.2 <= one.high for one in found]) >= 0.8
