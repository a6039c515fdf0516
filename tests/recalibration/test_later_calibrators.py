"""The calibrators after 2019 against closed forms, brute force, and temperature scaling inside."""

from typing import Any

import pytest
import scipy.optimize
import torch
from sklearn.isotonic import IsotonicRegression
from torch import Tensor, nn

import falconcal
from falconcal.errors import CalibrationWarning
from falconcal.inference.recalibrated import CALIBRATORS
from falconcal.methods import METHODS
from falconcal.metrics import Predictions, brier_score, negative_log_likelihood
from falconcal.recalibration import (
    CalibratedModel,
    DensityAware,
    EnsembleTemperature,
    FittedCalibrator,
    OneCurveIsotonic,
    ParameterisedTemperature,
    ShiftTemperature,
    Temperature,
)
from falconcal.recalibration.ensemble_temperature import best_mixture
from falconcal.recalibration.fit_losses import smoothed_nll, weighted_nll, weighted_squares
from falconcal.recalibration.parameterised_temperature import HIDDEN_UNITS, factors
from falconcal.recalibration.stages import INPUT, LOGITS, observe, views
from tests.helpers.small_data import mislabelled, small_network, stripes

HEAT = torch.tensor(1.7, dtype=torch.float64)


def drawn(count: int, classes: int, factor: float = 1.0, seed: int = 0) -> Predictions:
    """Return predictions whose logits are ``factor`` times those that the labels follow."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits(factor * logits, labels)


def of_temperature(log_probs: Tensor) -> Tensor:
    return Temperature().apply(log_probs, temperature=HEAT)


def learned() -> nn.Module:
    data = mislabelled(90)
    method = falconcal.L2Dropout(epochs=8, learning_rate=0.02)
    return method.fit(small_network(), data.batches(30), data.batches(30))


def temperature_of(calibration: FittedCalibrator) -> Tensor:
    return calibration.get_buffer("temperature")


@pytest.mark.parametrize("name", CALIBRATORS)
def test_an_empty_ladder_is_the_plain_fit_to_the_bit(name: str) -> None:
    """Perturbed validation data of one level, the clean one."""
    model, data = learned(), mislabelled(90)
    few = {"stored": 60, "neighbours": 5} if METHODS[name].observes else {}  # type: ignore[attr-defined]
    plain, empty = (
        METHODS[name](perturbed={}, clean_share=share, **few).fit(
            model, stripes(60).batches(30), data.batches(30)
        )
        for share in (1.0, 0.3)
    )
    for ours, theirs in zip(plain.buffers(), empty.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    if name != "shift_temperature":  # its own ladder is not empty
        default = METHODS[name](**few).fit(model, stripes(60).batches(30), data.batches(30))
        for ours, theirs in zip(default.buffers(), empty.buffers(), strict=True):
            assert torch.equal(ours, theirs)


def test_a_ladder_of_which_all_is_left_out_is_the_plain_fit() -> None:
    model, data = learned(), mislabelled(90)
    plain = Temperature().fit(model, None, data.batches(30)).calibration
    nothing = Temperature(perturbed={"contrast": "spread"}, leave_out=("contrast",))
    fitted = nothing.fit(model, None, data.batches(30)).calibration
    torch.testing.assert_close(temperature_of(plain), temperature_of(fitted), rtol=1e-9, atol=0)


# the losses


@pytest.mark.parametrize("classes", [2, 1000])
def test_the_losses_are_those_of_the_metrics(classes: int) -> None:
    data = drawn(50, classes)
    assert float(weighted_nll(data.log_probs, data.labels)) == pytest.approx(
        negative_log_likelihood(data)
    )
    assert float(weighted_squares(data.log_probs, data.labels)) == pytest.approx(brier_score(data))
    doubled = torch.cat([torch.arange(50), torch.arange(10)])
    weights = torch.cat([torch.full((10,), 2.0), torch.ones(40)]).double() / 60
    for loss in (weighted_nll, weighted_squares):
        ours = loss(data.log_probs, data.labels, weights)
        theirs = loss(data.log_probs[doubled], data.labels[doubled])
        torch.testing.assert_close(ours, theirs)


def test_platts_targets_are_torchs_smoothed_labels() -> None:
    data = drawn(50, 7)
    ours = smoothed_nll(data.log_probs, data.labels)
    theirs = nn.functional.cross_entropy(data.log_probs, data.labels, label_smoothing=1 / 52)
    torch.testing.assert_close(ours, theirs)


def sure_mistakes() -> tuple[Tensor, Tensor, Tensor]:
    """Return 196 right answers of log-odds 4, 4 wrong ones of 12, and a feature of no meaning."""
    odds = torch.cat([torch.full((196,), 4.0), torch.full((4,), -12.0)]).double()
    features = torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_probs = torch.stack([odds, torch.zeros(200).double()], 1).log_softmax(1)
    return log_probs, torch.zeros(200, dtype=torch.long), features


def likelihood_loss(calibrator: Any, extra: dict[str, Tensor], learned: dict[str, Tensor]) -> float:
    log_probs, labels, _ = sure_mistakes()
    after = calibrator.apply(log_probs, **extra, **learned)
    return float(weighted_nll(after, labels))


@pytest.mark.parametrize("kind", [DensityAware, ParameterisedTemperature])
def test_squares_that_are_far_too_sure_give_way_to_the_likelihood(kind: Any) -> None:
    """Squares do not mind how sure a mistake is, so they only sharpen: their likelihood is bad."""
    log_probs, labels, features = sure_mistakes()
    shown = {"features": features} if kind is DensityAware else {}
    more = {**shown, "rising": 1} if shown else {}
    losses = {
        one.loss: likelihood_loss(one, shown, one.learn(log_probs, labels, **more))
        for one in (kind(loss="auto"), kind(loss="squares"), kind(loss="likelihood"))
    }
    one = Temperature().learn(log_probs, labels)
    plain = likelihood_loss(Temperature(), {}, one)
    assert losses["squares"] > 2 * plain
    assert losses["auto"] == losses["likelihood"] <= plain + 1 / 200


def test_squares_stay_where_they_find_what_one_temperature_cannot() -> None:
    generator = torch.Generator().manual_seed(6)
    features = torch.rand(5000, 1, generator=generator, dtype=torch.float64)
    data = drawn(5000, 5)
    log_probs = (data.log_probs * (1 + 3 * features)).log_softmax(1)
    auto, squares, likelihood = (
        DensityAware(loss=loss).learn(log_probs, data.labels, features=features, rising=1)
        for loss in ("auto", "squares", "likelihood")
    )
    assert torch.equal(auto["weights"], squares["weights"])
    assert not torch.equal(auto["weights"], likelihood["weights"])


# ensemble temperature scaling


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_mixture_of_the_first_alone_is_temperature_scaling(classes: int) -> None:
    log_probs = drawn(100, classes).log_probs
    first = torch.tensor([1.0, 0.0, 0.0]).double()
    ours = EnsembleTemperature().apply(log_probs, temperature=HEAT, mixture=first)
    assert torch.equal(ours, of_temperature(log_probs))


def test_a_mixture_by_hand() -> None:
    """0.5 softmax(z / 2) + 0.25 softmax(z) + 0.25 / 2 of the odds 16 to 1."""
    log_probs = torch.tensor([[16 / 17, 1 / 17]]).double().log()
    mixture = torch.tensor([0.5, 0.25, 0.25]).double()
    ours = EnsembleTemperature().apply(
        log_probs, temperature=torch.tensor(2.0).double(), mixture=mixture
    )
    assert ours.exp()[0, 0].item() == pytest.approx(0.5 * 4 / 5 + 0.25 * 16 / 17 + 0.25 / 2)


@pytest.mark.parametrize("seed", range(5))
def test_the_mixture_is_the_best_on_the_simplex(seed: int) -> None:
    """Against SciPy's solver with the constraint written out, for weighted examples."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(3, 80, generator=generator, dtype=torch.float64)
    weights = torch.rand(80, generator=generator, dtype=torch.float64)
    weights /= weights.sum()
    ours = best_mixture(truth, weights)
    solve: Any = scipy.optimize.minimize  # its types know no constraints as a plain table
    theirs = solve(
        lambda w: -float((weights * (torch.from_numpy(w) @ truth).log()).sum()),
        [1 / 3] * 3,
        bounds=[(1e-12, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert ours.tolist() == pytest.approx(theirs.x.tolist(), abs=1e-4)
    assert float(ours.sum()) == pytest.approx(1, abs=1e-12)


def test_a_mixture_recovers_the_share_of_labels_that_are_noise() -> None:
    """Three labels in ten are drawn at random: w3 is 0.3, which no temperature can say."""
    data = drawn(40_000, 5, seed=2)
    generator = torch.Generator().manual_seed(3)
    noise = torch.rand(40_000, generator=generator) < 0.3
    labels = torch.where(noise, torch.randint(5, (40_000,), generator=generator), data.labels)
    seen = Predictions(data.log_probs, labels)
    fitted = EnsembleTemperature().fit_predictions(seen)
    assert float(fitted.get_buffer("mixture")[2]) == pytest.approx(0.3, abs=0.02)
    plain = Temperature().fit_predictions(seen)
    gain = negative_log_likelihood(plain.transform(seen)) - negative_log_likelihood(
        fitted.transform(seen)
    )
    assert gain > 0.01


# one-curve isotonic


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_one_curve_keeps_the_predicted_class(classes: int) -> None:
    seen = drawn(300 if classes == 1000 else 2000, classes, factor=3.0)
    other = drawn(10_000, classes, factor=3.0, seed=1)
    calibrated = OneCurveIsotonic().fit_predictions(seen).transform(other)
    assert torch.equal(calibrated.log_probs.argmax(1), other.log_probs.argmax(1))


def test_one_curve_is_scikit_learns_over_all_pairs() -> None:
    seen, other = drawn(500, 4, factor=2.0), drawn(100, 4, factor=2.0, seed=1)
    theirs = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    pairs = [
        (float(prob), float(label == number))
        for row, label in zip(seen.log_probs.exp(), seen.labels, strict=True)
        for number, prob in enumerate(row)
    ]
    theirs.fit(*zip(*pairs, strict=True))
    probs = other.log_probs.exp()
    curve = torch.from_numpy(theirs.predict(probs.flatten().numpy())).reshape(100, 4) + 1e-9 * probs
    ours = OneCurveIsotonic().fit_predictions(seen).transform(other).log_probs.exp()
    torch.testing.assert_close(ours, curve / curve.sum(1, keepdim=True), rtol=1e-7, atol=1e-9)


# parameterised temperature


def zero_network(features: int) -> dict[str, Tensor]:
    count = HIDDEN_UNITS * (features + 1) + HIDDEN_UNITS * (HIDDEN_UNITS + 1) + HIDDEN_UNITS + 1
    network = torch.zeros(count, dtype=torch.float64)
    network[-1] = 1.0
    plain = torch.zeros(features).double(), torch.ones(features).double()
    return {"temperature": HEAT, "network": network, "centre": plain[0], "spread": plain[1]}


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_parameterised_temperature_of_weights_0_is_temperature_scaling(classes: int) -> None:
    log_probs = drawn(100, classes).log_probs
    parameters = zero_network(min(classes, 10))
    ours = ParameterisedTemperature().apply(log_probs, **parameters)
    assert torch.equal(ours, of_temperature(log_probs))


def test_the_network_of_the_temperature_is_torchs() -> None:
    torch.manual_seed(4)
    layers = [nn.Linear(3, HIDDEN_UNITS), nn.Linear(HIDDEN_UNITS, HIDDEN_UNITS)]
    network = nn.Sequential(
        layers[0], nn.ReLU(), layers[1], nn.ReLU(), last := nn.Linear(HIDDEN_UNITS, 1)
    ).double()
    flat = [torch.cat([one.weight, one.bias[:, None]], 1).flatten() for one in (*layers, last)]
    features = torch.randn(20, 3, dtype=torch.float64)
    expected = network(features)[:, 0].abs().clamp_min(0.05)
    torch.testing.assert_close(factors(torch.cat(flat).detach(), features), expected.detach())


@pytest.mark.end_to_end  # fits to the end
def test_a_parameterised_temperature_finds_what_one_temperature_cannot() -> None:
    """Logits that are too large where they are confident alone."""
    parts, truths = [], []
    for seed in (0, 1):
        data = drawn(5000, 10, seed=seed)
        truths.append(data)
        sure = data.log_probs.exp().max(1, keepdim=True).values
        parts.append(Predictions.from_logits(data.log_probs * (1 + 4 * sure), data.labels))
    seen, other = parts
    ours = ParameterisedTemperature().fit_predictions(seen).transform(other)
    plain = Temperature().fit_predictions(seen).transform(other)
    least = brier_score(truths[1])  # of the probabilities that the labels follow
    assert brier_score(ours) - least < 0.3 * (brier_score(plain) - least)
    assert torch.equal(ours.log_probs.argmax(1), other.log_probs.argmax(1))


def test_without_a_mistake_the_single_temperature_stays() -> None:
    data = drawn(60, 4)
    seen = Predictions(data.log_probs, data.log_probs.argmax(1))
    with pytest.warns(CalibrationWarning, match="makes no mistake"):
        fitted = ParameterisedTemperature().fit_predictions(seen)
    with pytest.warns(CalibrationWarning, match="makes no mistake"):
        plain = Temperature().fit_predictions(seen)
    assert torch.equal(fitted.transform(seen).log_probs, plain.transform(seen).log_probs)


# density-aware calibration


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_density_of_weights_0_is_temperature_scaling(classes: int) -> None:
    log_probs = drawn(100, classes).log_probs
    weights = torch.tensor([0.0, 0.0, 0.0, float(HEAT)], dtype=torch.float64)
    features = torch.randn(100, 3, dtype=torch.float64)
    ours = DensityAware().apply(log_probs, features=features, weights=weights)
    assert torch.equal(ours, of_temperature(log_probs))


def test_density_recovers_known_weights_and_never_a_negative_one() -> None:
    """Labels that follow z / S with S = 1 + 0.5 a + 0 b: the third feature falls with the need."""
    generator = torch.Generator().manual_seed(5)
    features = torch.rand(60_000, 3, generator=generator, dtype=torch.float64)
    logits = 4 * torch.randn(60_000, 5, generator=generator, dtype=torch.float64)
    scale = 1.5 + 2 * features[:, 0] - 0.5 * features[:, 2]
    labels = torch.multinomial((logits / scale[:, None]).softmax(1), 1, generator=generator)[:, 0]
    found = DensityAware().learn(logits.log_softmax(1), labels, features=features, rising=3)
    weights = found["weights"].tolist()
    assert weights[:3] == pytest.approx([2.0, 0.0, 0.0], abs=0.1)
    assert weights[2] == 0.0  # the bound holds
    assert weights[3] == pytest.approx(1.25, abs=0.1)  # what the third feature takes on average


@pytest.mark.parametrize("distance", ["kth", "nearest_squared"])
def test_distances_of_either_name_equal_brute_force(distance: Any) -> None:
    model = learned()
    method = DensityAware(stored=60, neighbours=5, distance=distance)
    calibrated = method.fit(model, stripes(60).batches(30), mislabelled(90).batches(30))
    observer = calibrated.observer
    assert observer is not None
    assert INPUT not in observer.layout.stages
    assert observer.layout.stages[-1] == LOGITS
    inputs = stripes(7, seed=9).inputs
    logits, outputs = observe(model, inputs, observer.layout.stages)
    features = observer.features_of_pass(logits.detach(), outputs)
    stored = torch.split(observer.stored, list(observer.layout.widths), 1)
    assert features.shape == (7, len(stored))
    for number, (name, kept) in enumerate(zip(observer.layout.views, stored, strict=True)):
        rows = nn.functional.normalize(views(outputs, "pooled")[name], dim=1).detach()
        distances = (rows[:, None] - kept[None]).double().square().sum(2).sqrt().sort(1).values
        wanted = distances[:, 4] if distance == "kth" else distances[:, 0].square()
        torch.testing.assert_close(features[:, number], wanted, atol=2e-3, rtol=0)


def test_any_calibrator_may_follow() -> None:
    plain = falconcal.L2Dropout(epochs=8, learning_rate=0.02)
    first = DensityAware(base=plain, stored=60, neighbours=5)
    data = mislabelled(90).batches(30)
    both = EnsembleTemperature(base=first).fit(small_network(), data, data)
    inner = both.model
    assert isinstance(inner, CalibratedModel)
    assert isinstance(inner.calibration.calibrator, DensityAware)
    other = stripes(30, seed=6)
    raw = falconcal.predict(inner.model, other).log_probs.argmax(1)
    assert torch.equal(falconcal.predict(both, other).log_probs.argmax(1), raw)


def test_both_machines_are_one_with_other_settings() -> None:
    """The stored examples of the one and of the other are the same where the settings are."""
    data = stripes(60)
    model = small_network().eval()
    shared: dict[str, Any] = {"stages": ("2", "logits"), "views": "pooled", "neighbours": 3}
    first = DensityAware(**shared).observer(model, data)
    second = ShiftTemperature(**shared, use_labels=False, use_logits=False).observer(model, data)
    assert first.stores_the_same_as(second)
