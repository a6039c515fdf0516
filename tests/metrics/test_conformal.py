"""Conformal sets: what they promise, by simulation; scores and thresholds by hand."""

import math

import pytest
import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.metrics import CONFORMAL_KINDS, Predictions, fit_conformal
from falconcal.metrics.conformal import ConformalKind, class_scores

SETS, ALPHA, COUNT = 1000, 0.1, 99  # 90 of 100 ranks: the coverage is 0.9 exactly
ERROR = 3.5 * math.sqrt(ALPHA * (1 - ALPHA) / SETS)


def predictions(points: Tensor, classes: int, generator: torch.Generator) -> Predictions:
    """Return predictions at points (N,), the more overconfident the farther to the right."""
    places = torch.linspace(-2, 2, classes, dtype=torch.float64)
    truth = -(points[:, None] - places).square() / (1 + points[:, None].abs())
    labels = torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0]
    factors = 1 + 6 * points.clamp_min(0)[:, None]
    return Predictions.from_logits(factors * truth, labels)


@pytest.mark.end_to_end
@pytest.mark.parametrize("classes", [2, 5, 1000])
@pytest.mark.parametrize("kind", CONFORMAL_KINDS)
def test_sets_cover_as_often_as_promised(kind: ConformalKind, classes: int) -> None:
    """One new example for each of 1,000 calibration sets: within the error of a binomial."""
    generator = torch.Generator().manual_seed(classes)
    simulations, covered = (SETS if classes < 1000 else 200), 0.0
    for _ in range(simulations):
        points = torch.randn(COUNT + 1, generator=generator, dtype=torch.float64)
        data = predictions(points, classes, generator)
        seen = Predictions(data.log_probs[:-1], data.labels[:-1])
        new = Predictions(data.log_probs[-1:], data.labels[-1:])
        covered += fit_conformal(seen, ALPHA, kind).summary(new).coverage
    error = ERROR * math.sqrt(SETS / simulations)
    # with two classes the score of the last is 1 for all: ties can only add coverage
    most = 1.0 if classes == 2 and kind != "lac" else 1 - ALPHA + error
    assert 1 - ALPHA - error < covered / simulations <= most


@pytest.mark.end_to_end
@pytest.mark.parametrize("classes", [2, 5, 1000])
@pytest.mark.parametrize("kind", CONFORMAL_KINDS)
def test_weighted_sets_cover_under_a_known_density_ratio(kind: ConformalKind, classes: int) -> None:
    """Points from N(0, 1) at home and N(0.8, 1) there: w = exp(0.8 x - 0.32)."""
    generator = torch.Generator().manual_seed(7)
    simulations, plain, weighted = (SETS if classes < 1000 else 200), 0.0, 0.0
    for _ in range(simulations):
        home = torch.randn(300, generator=generator, dtype=torch.float64)
        there = 0.8 + torch.randn(1, generator=generator, dtype=torch.float64)
        seen, new = (predictions(points, classes, generator) for points in (home, there))
        plain += fit_conformal(seen, ALPHA, kind).summary(new).coverage
        ratios = (0.8 * home - 0.32).exp()
        made = fit_conformal(seen, ALPHA, kind, weights=ratios)
        weighted += made.summary(new, (0.8 * there - 0.32).exp()).coverage
    error = ERROR * math.sqrt(SETS / simulations)
    tied = classes == 2 and kind != "lac"  # as above: ties add coverage
    if classes == 5:
        assert plain / SETS < 1 - ALPHA - error  # without weights coverage is lost
    most = 1.0 if tied else 1 - ALPHA + max(0.05, error)
    assert 1 - ALPHA - error < weighted / simulations <= most


def test_weights_of_one_are_no_weights() -> None:
    generator = torch.Generator().manual_seed(1)
    data = predictions(torch.randn(199, generator=generator, dtype=torch.float64), 4, generator)
    plain = fit_conformal(data, 0.1)
    weighted = fit_conformal(data, 0.1, weights=torch.ones(199))
    assert torch.equal(plain.sets(data), weighted.sets(data, torch.ones(199)))
    assert weighted.effective_size == plain.effective_size == 199


def test_scores_by_hand() -> None:
    probs = torch.tensor([[0.2, 0.5, 0.3]]).double()
    for kind, expected in (
        ("lac", [0.8, 0.5, 0.7]),
        ("aps", [1.0, 0.5, 0.8]),
        ("raps", [1.2, 0.5, 0.9]),
    ):
        found = class_scores(probs, kind, penalty=0.1, free_ranks=1)  # type: ignore[arg-type]
        assert found[0].tolist() == pytest.approx(expected)


def test_a_threshold_by_hand() -> None:
    """Scores 0.1 to 0.9 of nine examples: the eighth of ten ranks for alpha 0.2 is 0.8."""
    truth = torch.linspace(0.9, 0.1, 9).double()
    seen = Predictions.from_probabilities(torch.stack([truth, 1 - truth], 1), torch.zeros(9).long())
    assert float(fit_conformal(seen, 0.2).thresholds(None, 1)) == pytest.approx(0.8)
    everything = fit_conformal(seen, 0.05)  # nine examples cannot promise that
    assert everything.thresholds(None, 1).item() == math.inf
    assert everything.summary(seen).mean_size == 2


def test_a_weighted_threshold_by_hand() -> None:
    """Weights 3 of the first 20 and 1 of the last 40: with an own weight of 20, 96 of 120."""
    truth = torch.linspace(0.99, 0.4, 60).double()
    seen = Predictions.from_probabilities(
        torch.stack([truth, 1 - truth], 1), torch.zeros(60).long()
    )
    weights = torch.tensor([3.0] * 20 + [1.0] * 40)
    made = fit_conformal(seen, 0.2, weights=weights)
    assert made.effective_size == pytest.approx(100**2 / (180 + 40))
    shown = "ConformalSets(kind='lac', alpha=0.2, examples=60, effective_size=45.5)"
    assert repr(made) == shown  # how many examples the weights leave, before all
    own = torch.tensor([20.0, 0.0, 500.0]).double()
    scores = 1 - truth
    expected = [float(scores[20 + 36 - 1]), float(scores[20 + 20 - 1]), math.inf]
    assert made.thresholds(own, 3).tolist() == pytest.approx(expected)


def test_what_cannot_be_promised_is_refused() -> None:
    data = Predictions.from_probabilities([[0.6, 0.4]] * 100, [0, 1] * 50)
    lonely = torch.full((100,), 1e-3)
    lonely[0] = 1.0
    with pytest.raises(UserError, match=r"effective sample size of 1\.\d, below 30"):
        fit_conformal(data, weights=lonely)
    with pytest.raises(UserError, match="alpha between 0 and 1, got 1"):
        fit_conformal(data, 1.0)
    with pytest.raises(UserError, match="unknown kind of conformal sets"):
        fit_conformal(data, kind="asp")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="true class of each, got 100 without"):
        fit_conformal(Predictions(data.log_probs, torch.full((100,), -1)))
    with pytest.raises(UserError, match="for each of 100 examples"):
        fit_conformal(data, weights=[1.0])
    with pytest.raises(UserError, match="got zeros alone"):
        fit_conformal(data, weights=[0.0] * 100)
    with pytest.raises(UserError, match="got them for these alone"):
        fit_conformal(data).sets(data, torch.ones(100))
    with pytest.raises(UserError, match="got them for calibration alone"):
        fit_conformal(data, weights=torch.ones(100)).sets(data)
    with pytest.raises(UserError, match="all classes, got scores"):
        fit_conformal(data.scores())
