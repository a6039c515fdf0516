"""Pooled figures: every resample against the plain loop, chance by hand, one image kept whole."""

import itertools
from collections.abc import Callable

import numpy
import pytest
import torch

from falconcal.errors import UserError
from falconcal.evidence import pooled_difference, pooled_interval
from falconcal.evidence.binned_errors import inverted_test_interval
from falconcal.evidence.differences import difference_of, interval_of
from falconcal.evidence.pooled import (
    GAP_FIGURES,
    RESAMPLES_AT_ONCE,
    drawn_counts,
    figure_of,
    level_draws,
    mean_of_draws,
    shift_draws,
)
from falconcal.metrics import BINS, METRICS, POOLED
from falconcal.metrics.binning import bin_index
from falconcal.metrics.predictions import Predictions, Scores
from falconcal.metrics.uncertainty import mean_confidence

EXAMPLES, LEVELS = 150, 4


def ladder(seed: int = 0, sharpness: float = 1.0, examples: int = EXAMPLES) -> list[Scores]:
    """Return levels of the same examples, each noisier and no less confident."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (examples,), generator=generator)
    truth = 3.0 * torch.nn.functional.one_hot(labels, 4)
    generator = torch.Generator().manual_seed(100 + seed)
    noise = [torch.randn(examples, 4, generator=generator) for _ in range(LEVELS)]
    logits = [sharpness * (truth + (1 + level) * part) for level, part in enumerate(noise)]
    return [Predictions.from_logits(part, labels).scores() for part in logits]


def loop(levels: list[Scores], counts: numpy.ndarray, figure: str) -> list[float]:
    """The plain way: repeat what was drawn, at every level alike, and measure."""
    return [FIGURES[figure](_taken(levels, row)) for row in counts]


def _taken(levels: list[Scores], row: numpy.ndarray) -> list[Scores]:
    chosen = torch.repeat_interleave(torch.arange(len(row)), torch.from_numpy(row).long())
    return [level.take(chosen) for level in levels]


FIGURES: dict[str, Callable[[list[Scores]], float]] = {
    **POOLED,
    "last_level_confidence": lambda levels: mean_confidence(levels[-1]),
}


def test_every_pooled_figure_can_be_drawn() -> None:
    assert set(GAP_FIGURES) == set(POOLED)


@pytest.mark.parametrize("figure", FIGURES)
def test_every_resample_is_that_of_the_plain_loop(figure: str) -> None:
    levels, counts = ladder(), drawn_counts(EXAMPLES, RESAMPLES_AT_ONCE + 20, seed=3)
    found = figure_of(shift_draws(levels, counts)[figure])
    assert found.value == pytest.approx(FIGURES[figure](levels), abs=1e-12)
    assert len(found.resampled) == len(counts)
    some = numpy.r_[0:30, len(counts) - 30 : len(counts)]
    assert found.resampled[some] == pytest.approx(loop(levels, counts[some], figure), abs=2e-6)


@pytest.mark.parametrize("figure", FIGURES)
def test_levels_of_other_examples_are_drawn_for_themselves(figure: str) -> None:
    """As many of each as there are; the clean ones of one draw, the others of another."""
    clean, others = ladder()[:1], ladder(seed=5, examples=60)[2:]
    counts, their_counts = drawn_counts(EXAMPLES, 30, seed=3), drawn_counts(60, 30, seed=4)
    found = figure_of(shift_draws([*clean, *others], counts, their_counts)[figure])
    assert found.value == pytest.approx(FIGURES[figure]([*clean, *others]), abs=1e-7)
    plain = [
        FIGURES[figure]([*_taken(clean, own), *_taken(others, their)])
        for own, their in zip(counts, their_counts, strict=True)
    ]
    assert found.resampled == pytest.approx(plain, abs=2e-6)


@pytest.mark.parametrize("figure", FIGURES)
def test_levels_that_have_examples_of_their_own_are_each_drawn_by_themselves(figure: str) -> None:
    sizes = (EXAMPLES, 60, 35)
    levels = [ladder(seed=size, examples=size)[1] for size in sizes]
    counts, *others = (drawn_counts(size, 30, seed=size) for size in sizes)
    found = figure_of(shift_draws(levels, counts, others)[figure])
    assert found.value == pytest.approx(FIGURES[figure](levels), abs=1e-7)
    plain = [
        FIGURES[figure]([_taken([level], row)[0] for level, row in zip(levels, rows, strict=True)])
        for rows in zip(counts, *others, strict=True)
    ]
    assert found.resampled == pytest.approx(plain, abs=2e-6)


@pytest.mark.parametrize("metric", ["accuracy", "confidence"])
def test_draws_of_one_level_are_those_of_the_plain_loop(metric: str) -> None:
    scores, counts = ladder()[1], drawn_counts(EXAMPLES, 40, seed=3)
    found = figure_of(level_draws(scores, metric, counts))
    rows = [numpy.repeat(numpy.arange(EXAMPLES), row) for row in counts]
    plain = [METRICS[metric](scores.take(torch.from_numpy(row))) for row in rows]
    assert found.value == pytest.approx(METRICS[metric](scores))
    assert found.resampled == pytest.approx(plain, abs=2e-6)


@pytest.mark.parametrize("figure", ["micro_ece", "macro_ece"])
def test_a_single_level_has_plain_ece(figure: str) -> None:
    scores, counts = ladder()[1], drawn_counts(EXAMPLES, 20, seed=3)
    found = figure_of(shift_draws([scores], counts)[figure])
    assert found.value == pytest.approx(METRICS["ece"](scores))
    assert found.resampled == pytest.approx(loop([scores], counts, "micro_ece"), abs=2e-6)


def test_counts_are_draws_of_all_examples() -> None:
    counts = drawn_counts(300, 400, seed=1)
    assert (counts.sum(1, dtype=int) == 300).all()
    assert (counts == 0).mean() == pytest.approx((1 - 1 / 300) ** 300, abs=0.005)  # 1/e nearly
    assert counts.var(dtype=float) == pytest.approx(1 - 1 / 300, abs=0.02)
    assert (drawn_counts(300, 400, seed=1) == counts).all()
    assert (drawn_counts(300, 400, seed=2) != counts).any()
    with pytest.raises(UserError, match="at least 2 resamples"):
        drawn_counts(300, 1, seed=1)


def test_levels_of_an_image_stay_together() -> None:
    """Ten levels that repeat the clean one are no more evidence than the clean one."""
    clean = ladder()[1]
    alone = pooled_interval([[clean]], "micro_ece")
    repeated = pooled_interval([[clean] * 10, [clean] * 3], "micro_ece")
    assert repeated.value == pytest.approx(alone.value)
    assert (repeated.low, repeated.high) == pytest.approx((alone.low, alone.high), abs=1e-6)


def test_the_mean_over_shifts_and_seeds_is_the_mean_of_figures() -> None:
    shifts = [ladder(seed) for seed in range(3)]
    found = pooled_interval(shifts, "macro_ece", resamples=200)
    assert found.value == pytest.approx(numpy.mean([POOLED["macro_ece"](one) for one in shifts]))
    assert 0 <= found.low < found.high
    counts = drawn_counts(EXAMPLES, 200, seed=0)
    means = [loop(levels, counts[:20], "macro_ece") for levels in shifts]
    draws = mean_of_draws(shift_draws(levels, counts)["macro_ece"] for levels in shifts)
    assert figure_of(draws).resampled[:20] == pytest.approx(numpy.mean(means, 0), abs=2e-6)


@pytest.mark.parametrize("figure", ["micro_ece", "macro_ece"])
def test_the_interval_of_a_pooled_error_inverts_the_test_of_all_its_gaps(figure: str) -> None:
    """Gaps of each level and bin by a plain loop, and the bounds of the root finder."""
    shifts, counts = [ladder(seed) for seed in range(2)], drawn_counts(EXAMPLES, 300, seed=0)

    def gaps(row: numpy.ndarray) -> numpy.ndarray:
        found = numpy.zeros((len(shifts), LEVELS, BINS))
        for shift, level in itertools.product(range(len(shifts)), range(LEVELS)):
            scores = shifts[shift][level]
            bins = bin_index(scores.confidence, BINS).numpy()
            each = (scores.correct.double() - scores.confidence.double()).numpy()
            found[shift, level] = numpy.bincount(bins, row * each, BINS) / EXAMPLES
        return (found.mean(1) if figure == "micro_ece" else found / LEVELS).ravel() / len(shifts)

    drawn = numpy.stack([gaps(row) for row in counts])
    low, high = inverted_test_interval(
        gaps(numpy.ones(EXAMPLES)), drawn, 0.9, lambda g: numpy.abs(g).sum(-1)
    )
    found = pooled_interval(shifts, figure, level=0.9, resamples=300)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)


def test_means_have_percentiles() -> None:
    draws = level_draws(ladder()[1], "confidence", drawn_counts(EXAMPLES, 200, seed=3))
    found = interval_of(figure_of(draws, 0.9))
    bounds = numpy.quantile(draws.drawn[:, 0], [0.05, 0.95])
    assert (found.low, found.high) == pytest.approx(tuple(bounds))


def test_a_model_without_any_gap_has_no_error() -> None:
    certain = Predictions.from_probabilities(torch.eye(3).repeat(5, 1), torch.arange(3).repeat(5))
    found = pooled_interval([[certain, certain]], "macro_ece", resamples=20)
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_a_paired_difference_is_narrower_and_beyond_chance() -> None:
    first, second = [ladder(sharpness=3.0)], [ladder(sharpness=1.0)]
    found = pooled_difference(first, second, "micro_ece")
    value = POOLED["micro_ece"](first[0]) - POOLED["micro_ece"](second[0])
    assert found.value == pytest.approx(value)
    assert found.effect == pytest.approx(value / POOLED["micro_ece"](second[0]))
    assert 0 < found.low < found.value < found.high
    assert found.p_value == pytest.approx(2 / 1001)
    alone = [pooled_interval(shifts, "micro_ece") for shifts in (first, second)]
    assert found.high - found.low < sum(one.high - one.low for one in alone)
    turned = pooled_difference(second, first, "micro_ece")
    assert (turned.value, turned.low) == pytest.approx((-found.value, -found.high))


def test_a_method_does_not_differ_from_itself() -> None:
    same = pooled_difference([ladder()], [ladder()], "macro_ece", resamples=50)
    assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1)


@pytest.mark.end_to_end
def test_chance_of_equal_methods_is_spread_evenly() -> None:
    """Two models that err alike are told apart at 5 % about one time in twenty."""
    found = []
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        correct = torch.rand(2, 300, generator=generator) < 0.7
        one, other = (_right(row) for row in correct)
        counts = drawn_counts(300, 200, seed)
        first, second = (figure_of(level_draws(part, "accuracy", counts)) for part in (one, other))
        found.append(difference_of(first, second).p_value)
    assert 0.01 <= numpy.mean(numpy.array(found) < 0.05) <= 0.1
    assert 0.35 <= numpy.mean(numpy.array(found) < 0.5) <= 0.65


def test_what_does_not_belong_together_is_refused() -> None:
    levels = ladder()
    with pytest.raises(UserError, match="Did you mean 'micro_ece'"):
        pooled_interval([levels], "mikro_ece")
    with pytest.raises(UserError, match="same examples"):
        pooled_difference([levels], [ladder(examples=20)], "micro_ece")
    with pytest.raises(UserError, match="same examples"):
        pooled_interval([[levels[0], levels[1].take(torch.arange(EXAMPLES).flip(0))]], "micro_ece")
    with pytest.raises(UserError, match="at least one shift"):
        pooled_interval([], "micro_ece")
    unknown = Predictions.from_logits(torch.randn(5, 3), torch.full((5,), -1))
    with pytest.raises(UserError, match="true class"):
        pooled_interval([[unknown]], "micro_ece")


def _right(correct: torch.Tensor) -> Scores:
    label, certain = torch.ones(len(correct), dtype=torch.long), torch.full((len(correct),), 0.7)
    rest = dict.fromkeys(("confidence", "nll", "entropy", "brier"), certain)
    return Scores(label=label, prediction=label, correct=correct, **rest)
