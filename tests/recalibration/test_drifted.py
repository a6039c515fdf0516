"""A labelled sample of drifted data in the fit of every calibrator."""

from dataclasses import replace
from typing import Any

import pytest
import scipy.optimize
import torch
from torch import Tensor, nn

from falconcal.data import Examples
from falconcal.errors import UserError
from falconcal.models.predict import predict
from falconcal.recalibration import (
    CalibratedModel,
    FitRecord,
    LeftOutRecord,
    ShiftTemperature,
    Temperature,
)
from falconcal.recalibration.ladder import Ladder
from tests.helpers.methods_by_kind import CALIBRATORS
from tests.helpers.short_fits import short_fits

CLASSES = ("a", "b", "c")
CENTRES = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
MODEL = nn.Linear(2, 3, bias=False).requires_grad_(False)
MODEL.weight.copy_(2 * CENTRES)


def cloud(count: int, moved: float, seed: int) -> Examples:
    """Return three clouds of points, moved to one side as a sensor drifts."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    points = CENTRES[labels] + torch.randn(count, 2, generator=generator)
    return Examples(points + moved * torch.tensor([1.0, 0.5]), labels, None, CLASSES)


CLEAN, DRIFTED = cloud(200, 0.0, 1), cloud(60, 1.5, 2)


def fitted(calibrator: Any, drifted: Examples | None) -> CalibratedModel:
    train, validation = cloud(150, 0.0, 3).batches(50), CLEAN.batches(50)
    model: CalibratedModel = calibrator.fit(MODEL, train, validation, drifted=drifted)
    return model


def quick(kind: Any, **settings: Any) -> Any:
    return kind(perturbed={}, check_families=False, **settings)


@pytest.mark.filterwarnings("ignore::falconcal.errors.CalibrationWarning")
@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_calibrator_is_drawn_towards_drifted_data_by_its_share(name: str) -> None:
    raw, answers = MODEL(DRIFTED.inputs), []
    for share in (0.01, 0.99):
        model = fitted(quick(CALIBRATORS[name], drifted_share=share), DRIFTED)
        probs = model(DRIFTED.inputs).exp()
        assert torch.isfinite(probs).all()
        answers.append(_squares(probs, DRIFTED.labels))  # some are fitted by these, not by NLL
    assert answers[1] < answers[0]
    assert answers[1] < _squares(raw.softmax(1), DRIFTED.labels)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", CALIBRATORS)
def test_without_drifted_data_its_settings_change_no_bit(name: str) -> None:
    one, other = (
        fitted(quick(CALIBRATORS[name], drifted_share=share, drifted_examples=count), None)
        for share, count in ((0.5, None), (0.9, 7))
    )
    probed = cloud(30, 0.5, 4).inputs
    assert torch.equal(one(probed), other(probed))


def test_the_temperature_is_that_of_the_weighted_likelihood() -> None:
    """The clean copy and the sample share the weight, whatever their numbers are."""
    share = 0.3
    model = fitted(quick(Temperature, drifted_share=share), DRIFTED)

    def loss(log_heat: float) -> float:
        heat = float(torch.tensor(log_heat).exp())
        parts = (_nll(MODEL(one.inputs).double() / heat, one.labels) for one in (CLEAN, DRIFTED))
        clean, drifted = parts
        return (1 - share) * clean + share * drifted

    expected = scipy.optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded").x
    logits, calibrated = MODEL(CLEAN.inputs[:1]).double(), model(CLEAN.inputs[:1]).double()
    gap = (logits[0, 0] - logits[0, 1]) / (calibrated[0, 0] - calibrated[0, 1])
    assert float(gap.log()) == pytest.approx(expected, abs=1e-4)


def test_the_sample_takes_its_share_from_all_copies_in_proportion() -> None:
    ladder = Ladder({"sensor_noise": (0.5, 1.0)}, (), 0.8, 0.1, drifted_share=0.25)
    alone = ladder.copies(MODEL, CLEAN, 3)
    beside = ladder.copies(MODEL, CLEAN, 3, drifted=DRIFTED)
    assert sum(copy.weight for copy in beside) == pytest.approx(1)
    assert [copy.family for copy in beside] == [*(copy.family for copy in alone), "drifted"]
    for before, after in zip(alone, beside, strict=False):
        assert after.weight == pytest.approx(0.75 * before.weight)
    assert beside[-1].weight == 0.25
    assert torch.equal(beside[-1].examples.labels, DRIFTED.labels)


@pytest.mark.usefixtures("short_fits")
def test_as_many_drifted_examples_are_drawn_as_are_asked_for() -> None:
    calibrator = quick(ShiftTemperature, drifted_examples=20)
    few = fitted(calibrator, DRIFTED)
    again, other = fitted(calibrator, DRIFTED), fitted(replace(calibrator, seed=1), DRIFTED)
    probed = DRIFTED.inputs
    assert torch.equal(few(probed), again(probed))
    assert not torch.equal(few(probed), other(probed))


def test_the_record_says_what_to_expect_on_drifted_data() -> None:
    record = fitted(ShiftTemperature(perturbed={}), DRIFTED).fit_record
    assert record is not None
    assert [one.family for one in record.left_out] == ["clean", "drifted"]
    assert record.verdict()[1].startswith("On drifted examples not fitted on: ")
    assert record.left_out[1].ece_after < record.left_out[1].ece_before
    method = ShiftTemperature(perturbed={"sensor_noise": "spread", "gain": "spread"})
    with short_fits():
        both = fitted(method, DRIFTED).fit_record
    assert both is not None
    assert [one.family for one in both.left_out] == ["clean", "sensor_noise", "gain", "drifted"]
    assert "on average over 2 families" in both.verdict()[2]


def test_drifted_examples_without_a_class_or_of_another_shape_are_refused() -> None:
    unlabelled = replace(DRIFTED, labels=torch.full_like(DRIFTED.labels, -1))
    with pytest.raises(UserError, match=r"each with its true class, got .* 60 labels of -1"):
        fitted(Temperature(), unlabelled)
    wide = Examples(torch.rand(9, 3), torch.arange(9) % 3, None, CLASSES)
    with pytest.raises(UserError, match=r"drifted examples of shape \(2,\).*got shape \(3,\)"):
        fitted(Temperature(), wide)


def test_drifted_batches_are_as_good_as_a_part() -> None:
    train, validation = cloud(150, 0.0, 3).batches(50), CLEAN.batches(50)
    part, batches = (
        quick(Temperature).fit(MODEL, train, validation, drifted=given)
        for given in (DRIFTED, DRIFTED.batches(200))
    )
    given = predict(part, DRIFTED).log_probs
    assert torch.equal(given, predict(batches, DRIFTED).log_probs)


def _squares(probs: Tensor, labels: Tensor) -> float:
    return float((probs - nn.functional.one_hot(labels, 3)).square().sum(1).mean())


def _nll(logits: Tensor, labels: Tensor) -> float:
    return float(nn.functional.cross_entropy(logits.double(), labels))


def test_the_headline_says_where_it_helps_and_the_figures_where_they_come_from() -> None:
    found = (
        LeftOutRecord("clean", 0.02, 0.025),
        LeftOutRecord("drifted", 0.3, 0.1),
        LeftOutRecord("wave", 0.1, 0.2),
        LeftOutRecord("swirl", 0.3, 0.3),
    )
    record = FitRecord((), found, "Few.")
    assert record.headline() == (
        "At home about the same; on later data better calibrated; under shifts that were not "
        "fitted on worse calibrated."
    )
    assert record.figures()[:2] == [("at home", 0.02, 0.025), ("later data", 0.3, 0.1)]
    assert record.figures()[2] == ("mean of 2 crafted shifts", 0.2, 0.25)
    assert [row[0] for row in record.figures()[3:]] == ["wave", "swirl"]
    assert record.details()[0] == "Few."
    assert record.details()[-1] == "Real shifts that are unlike all of these were not tested."
    outside = LeftOutRecord("uniform_noise", 0.8, 0.2, is_outliers=True)
    beside = FitRecord((), (*found, outside))
    assert beside.figures()[2:3] == record.figures()[2:3]  # outliers are no crafted shift
    assert beside.figures()[-1] == ("outliers, uniform_noise", 0.8, 0.2)
    assert beside.headline().endswith("; on outliers that were not fitted on better calibrated.")
    assert beside.verdict()[-2:] == [
        "On outliers that were left out of the fit: 0.800 before, 0.200 after.",
        "Real shifts that are unlike all of these were not tested.",
    ]
    alone = FitRecord((), found[:2])
    assert alone.details() == [
        "Judged on examples that were not fitted on. No other shift was tested."
    ]
    assert FitRecord(()).headline() == "What the calibration brings was not measured."
