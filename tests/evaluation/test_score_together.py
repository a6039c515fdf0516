"""Several models scored in one pass: each to the bit as by itself, and nothing computed twice."""

import weakref
from dataclasses import replace
from typing import Any

import polars
import pytest
import torch
from torch import Tensor, nn

from falconcal.data import Dataset, Examples
from falconcal.errors import UserError
from falconcal.evaluation import score_together, score_under_shift
from falconcal.methods import L2Dropout
from falconcal.metrics.predictions import Predictions
from falconcal.models.predict import predict
from falconcal.recalibration import CalibratedModel, Calibrator, ShiftTemperature, Temperature
from falconcal.recalibration.neighbours import Neighbours
from falconcal.shifts import OUTLIERS, SHIFTS, AnyShift, Shift, StoredShift
from falconcal.shifts.stored.stored_shift import StoredLevel
from tests.helpers.methods_by_kind import CALIBRATORS
from tests.helpers.short_fits import short_fits
from tests.helpers.small_data import small_network, stripes
from tests.helpers.stripes import load_stripes

pytestmark = pytest.mark.usefixtures("short_fits")  # bits are compared, and calls are counted
LADDER: dict[str, Any] = {"check_families": False, "stored": 20}


def on_ladder(*families: str, **changes: Any) -> ShiftTemperature:
    settings: dict[str, Any] = {"perturbed": families, **LADDER, **changes}
    return ShiftTemperature(**settings)


def stored_shift(tiny: Dataset) -> StoredShift:
    level = StoredLevel(tiny.test.labels, lambda part: 0.5 * tiny.test.inputs[part])
    return StoredShift("darker", 1, lambda _, __: level)


def first_levels(name: str) -> Shift:
    """Return a shift with its first levels alone, which are as good as all to compare bits."""
    return replace(SHIFTS[name], strengths=SHIFTS[name].strengths[:3])


def learned(tiny: Dataset, seed: int = 0) -> nn.Module:
    method = L2Dropout(epochs=5, learning_rate=0.01)
    network = small_network(seed=seed)
    return method.fit(network, tiny.train.batches(30), tiny.validation.batches())


def calibrated(calibrator: Calibrator, model: nn.Module, tiny: Dataset) -> nn.Module:
    labels = torch.where(torch.arange(90) % 5 == 0, (tiny.train.labels + 1) % 3, tiny.train.labels)
    # a fifth is wrong, so that there is something to settle
    wrong = Examples(tiny.train.inputs, labels, tiny.bounds, tiny.classes)
    return calibrator.fit(model, tiny.train.batches(30), wrong.batches(30))


class OwnForward(CalibratedModel):
    """A calibrated model that does something else."""

    def forward(self, inputs: Tensor) -> Tensor:
        return -super().forward(inputs)


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    """Every calibrator around one network, some around a calibrated one, and another network."""
    with short_fits():
        return _models(load_stripes())


def _models(tiny: Dataset) -> dict[str, nn.Module]:
    network = learned(tiny)
    found = {
        name: calibrated(
            kind(**(LADDER if kind().observes else {})),
            network,
            tiny,
        )
        for name, kind in CALIBRATORS.items()
    }
    first, second = on_ladder("contrast"), on_ladder("wave", "speckle")
    temperature = found["temperature"]
    assert isinstance(temperature, CalibratedModel)
    return {
        **found,
        "raw": network,
        "one ladder": calibrated(first, network, tiny),
        "another ladder": calibrated(second, network, tiny),
        "other stages": calibrated(replace(first, stages=("input", "2")), network, tiny),
        "fewer neighbours": calibrated(replace(first, neighbours=2), network, tiny),
        "twice": calibrated(Temperature(), temperature, tiny),
        "twice with stages": calibrated(first, temperature, tiny),
        "own forward": OwnForward(network, temperature.calibration),
        "other network": learned(tiny, seed=1),
        "around the other": calibrated(first, learned(tiny, seed=1), tiny),
        "in training mode": calibrated(Temperature(), learned(tiny, seed=2), tiny).train(),
    }


def test_every_model_is_scored_to_the_bit_as_by_itself(
    tiny: Dataset, models: dict[str, nn.Module]
) -> None:
    fgsm = first_levels("fgsm")
    shifts: list[AnyShift] = [first_levels("gaussian_noise"), stored_shift(tiny), fgsm]
    shifts.append(first_levels("contrast") | fgsm)
    outliers = [OUTLIERS["uniform_noise"]]
    together = score_together(models, tiny.test, shifts, outliers, batch_size=7)
    assert list(together) == list(models)
    for name, model in models.items():
        alone = score_under_shift(model, tiny.test, shifts, outliers, batch_size=7)
        assert together[name].equals(alone), name
    assert models["in training mode"].training


def test_scores_equal_those_of_the_models_own_forward_pass(
    tiny: Dataset, models: dict[str, nn.Module]
) -> None:
    noise = SHIFTS["gaussian_noise"]
    together = score_together(models, tiny.test, [noise])
    inputs = noise.at(tiny.test.inputs, 3)
    for name, model in models.items():
        expected = predict(model, tiny.test.repeated(inputs)).scores()
        found = together[name].filter(shift="gaussian_noise", level=3)
        assert found["confidence"].to_torch().equal(expected.confidence), name
        assert found["prediction"].to_torch().long().equal(expected.prediction), name


def test_a_calibrated_model_is_its_calibration_of_its_networks_logits(
    tiny: Dataset, models: dict[str, nn.Module]
) -> None:
    found = score_together(models, tiny.test, [])
    with torch.no_grad():
        logits = models["raw"].eval()(tiny.test.inputs)
    for name in ("temperature", "isotonic"):
        model = models[name]
        assert isinstance(model, CalibratedModel)
        by_hand = Predictions.from_logits(model.calibration(logits), tiny.test.labels).scores()
        torch.testing.assert_close(found[name]["confidence"].to_torch(), by_hand.confidence)


def count_calls(model: nn.Module) -> list[int]:
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_the_network_is_passed_once_per_batch(tiny: Dataset) -> None:
    network = learned(tiny)
    names = [name for name in CALIBRATORS if not CALIBRATORS[name]().observes]
    both = {name: calibrated(CALIBRATORS[name](), network, tiny) for name in names}
    both["shift temperature"] = calibrated(ShiftTemperature(**LADDER), network, tiny)
    both["twice"] = calibrated(Temperature(), both["temperature"], tiny)
    calls = count_calls(network)
    score_together({"raw": network, **both}, tiny.test, [SHIFTS["shear"]], batch_size=10)
    assert len(calls) == 3 * len(SHIFTS["shear"].levels)  # batches, of 30 examples


def test_distances_are_measured_once_where_the_stored_examples_are_the_same(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = learned(tiny)
    ladders = {name: calibrated(on_ladder(name), network, tiny) for name in ("contrast", "wave")}
    ladders["other examples"] = calibrated(on_ladder("wave", stored=10), network, tiny)
    measured: list[int] = []
    features = Neighbours.features

    def counted(self: Neighbours, *given: Any) -> Tensor:
        measured.append(len(self.labels))
        return features(self, *given)

    monkeypatch.setattr(Neighbours, "features", counted)
    score_together(ladders, tiny.test, [], batch_size=30)
    assert sorted(measured) == [10, 20]


def test_every_shifted_batch_is_made_once(tiny: Dataset) -> None:
    made: list[float] = []

    def darker(inputs: Tensor, kept: float, _: object) -> Tensor:
        made.append(kept)
        return kept * inputs

    models = {name: small_network(seed=name) for name in range(3)}
    score_together(models, tiny.test, [Shift("darker", (1.0, 0.5, 0.1), darker)], batch_size=15)
    assert made == [0.5, 0.5, 0.1, 0.1]


def test_the_clean_data_can_be_left_out(tiny: Dataset) -> None:
    model, shear = small_network(), SHIFTS["shear"]
    whole = score_under_shift(model, tiny.test, [shear])
    found = score_together({0: model}, tiny.test, [shear], clean=False)[0]
    assert found.equals(whole.filter(polars.col("level") > 0))
    with pytest.raises(UserError, match="expected shifts or outliers"):
        score_together({0: model}, tiny.test, [], clean=False)


@pytest.mark.parametrize("given", [{}, [small_network()], {"a": "lenet"}])
def test_what_is_not_models_by_name_is_refused(tiny: Dataset, given: Any) -> None:
    with pytest.raises(UserError, match="expected"):
        score_together(given, tiny.test, [])


def test_one_network_is_held_at_a_time(tiny: Dataset) -> None:
    """What stages gave out is dropped before the next network is passed."""
    alive: list[int] = []
    kept: list[Any] = []

    def note(_: nn.Module, __: Any, output: Tensor) -> None:
        kept.append(weakref.ref(output))
        alive.append(sum(one() is not None for one in kept))

    models = {}
    for seed in range(3):
        network = learned(tiny, seed)
        models[seed] = calibrated(on_ladder("wave"), network, tiny)
        network.get_submodule("2").register_forward_hook(note)
    score_together(models, stripes(30), [], batch_size=30)
    assert alive == [1, 1, 1]
