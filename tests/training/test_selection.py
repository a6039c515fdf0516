"""Choosing by validation data: the criterion by hand, and which epoch is kept."""

import copy
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from falconcal.data import Dataset, Examples
from falconcal.data.dataset import Modality
from falconcal.errors import UserError
from falconcal.methods import Falcon, L2Dropout
from falconcal.metrics import expected_calibration_error
from falconcal.models.predict import predict
from falconcal.shifts import SHIFTS, Shift
from falconcal.shifts.fgsm import EPSILONS, fgsm
from falconcal.training import History, on_epoch
from falconcal.training.criterion import (
    CRITERIA,
    FAMILIES,
    CriterionResult,
    Requirements,
    examples_to_judge,
    shifted_validation,
    validation_criterion,
)
from falconcal.training.selection import EpochSelector
from tests.helpers.small_data import small_network


def test_the_criterion_is_the_mean_over_families_of_the_mean_over_levels(tiny: Dataset) -> None:
    reference, model, clean = small_network(seed=1), small_network(seed=2), tiny.validation
    shift = SHIFTS["contrast"]
    result = validation_criterion(model, shifted_validation(clean, reference, [shift]))

    def error(inputs: Tensor) -> float:
        return expected_calibration_error(predict(model, clean.repeated(inputs)))

    attacked = [fgsm(reference, clean.inputs, clean.labels, eps, clean.bounds) for eps in EPSILONS]
    families = [
        error(clean.inputs),
        sum(error(inputs) for inputs in attacked) / 10,
        sum(error(shift.at(clean.inputs, level)) for level in range(1, 6)) / 5,
    ]
    assert result.criterion == pytest.approx(sum(families) / 3)
    assert list(result.families.values()) == pytest.approx(families)


def test_matched_levels_cost_the_reference_as_much_accuracy_in_every_family() -> None:
    """By hand: a model that is right where an example's value is above what is taken away."""
    values = (torch.arange(400) + 0.5) / 400
    data = Examples(values[:, None], torch.ones(400).long(), classes=("low", "high"))
    taken = Shift("taken", (0.0, 0.5, 1.0), lambda inputs, strength, _: inputs - strength)
    matched = shifted_validation(data, Above(), [taken], None, CRITERIA["matched_levels"])
    shares = [float((level > 0).double().mean()) for level in matched.families["taken"]]
    # accuracy 1 and chance 1/2: 1/2 + 1/2 (1 - i/9)^2, and once the accuracy of a guess
    wanted = [0.5 + 0.5 * (1 - step / 9) ** 2 for step in range(1, 10)]
    assert shares == pytest.approx(wanted, abs=0.01)
    result = validation_criterion(Above(), matched)
    sure = [1.0, *shares]  # Above is always sure: its ECE is how often it is wrong
    assert result.criterion == pytest.approx(sum(1 - share for share in sure) / 10, abs=1e-6)
    assert result.clean_ece == pytest.approx(0.0, abs=1e-6)
    assert matched.required.accuracy == pytest.approx(0.99)
    assert matched.required.clean_ece == pytest.approx(0.02, abs=1e-6)


def test_a_target_that_no_level_reaches_counts_once() -> None:
    data = Examples(torch.rand(50, 1) + 1, torch.ones(50).long(), classes=("low", "high"))
    weak = Shift("weak", (0.0, 0.1, 0.2), lambda inputs, strength, _: inputs - strength)
    matched = shifted_validation(data, Above(), [weak], None, CRITERIA["matched_levels"])
    assert len(matched.families["weak"]) == 1


class Above(nn.Module):
    """Says class 1 where the value is above 0, and is always sure."""

    def forward(self, inputs: Tensor) -> Tensor:
        high = (inputs[:, 0] > 0).float()
        return 100 * torch.stack([1 - high, high], 1)


def test_a_timid_epoch_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, model = EpochSelector([], 2), nn.Linear(1, 1)
    keeper.required = Requirements(0.9, clean_ece=0.03)
    script = iter([CriterionResult(0.95, 0.3, {}, 0.02), CriterionResult(0.95, 0.1, {}, 0.06)])
    monkeypatch.setattr(
        "falconcal.training.selection.validation_criterion", lambda *_: next(script)
    )
    for epoch in (1, 2):
        keeper.check(model, epoch)
    assert keeper.best().epoch == 1


def test_judging_an_epoch_costs_a_tenth_of_training_it() -> None:
    assert examples_to_judge(28, 55_000) == 589  # 28 x 589 passes, 3 x 55,000 / 10
    assert examples_to_judge(28, 1200) == 200


def test_plain_validation_is_attacked_through_the_model_itself(tiny: Dataset) -> None:
    model = small_network(seed=2)
    own = validation_criterion(model, shifted_validation(tiny.validation, model, ()))
    plain = validation_criterion(model, tiny.validation.batches(7), tiny.bounds)
    assert plain.criterion == pytest.approx(own.criterion)


def test_tokens_are_judged_without_a_gradient_to_move_them_along() -> None:
    tokens, labels = torch.randint(1, 9, (12, 5)), torch.arange(12) % 3
    data = Examples(tokens, labels, classes=("a", "b", "c"), tokens=9)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    result = validation_criterion(model, shifted_validation(data, model, [SHIFTS["word_drop"]]))
    assert set(result.families) == {"clean", "word_drop"}
    kept = L2Dropout(epochs=2, keep="best").fit(model, data.batches(4), data.batches(4))
    assert validation_criterion(kept, data.batches(4)).families.keys() == {"clean"}


class Scripted(EpochSelector):
    """A selector whose results are written beforehand."""

    def __init__(self, script: list[tuple[float, float]], required: float) -> None:
        super().__init__([], len(script))
        self.required = Requirements(required)
        self.script = iter(CriterionResult(accuracy, criterion) for accuracy, criterion in script)


@pytest.mark.parametrize(
    ("script", "required", "kept"),
    [
        ([(0.9, 0.2), (0.9, 0.1), (0.9, 0.3)], 0.0, 2),  # the lowest criterion
        ([(0.5, 0.01), (0.9, 0.2), (0.9, 0.3)], 0.0, 2),  # not that of a model that knows less
        ([(0.9, 0.2), (0.895, 0.1), (0.8, 0.0)], 0.0, 2),  # within a hundredth is enough
        ([(0.7, 0.2), (0.8, 0.3), (0.75, 0.1)], 0.9, 2),  # none is enough: the most accurate
        ([(0.9, 0.1), (0.905, 0.2), (0.912, 0.3)], 0.0, 2),  # the bar rises, and 2 is over it
        ([(0.9, 0.1), (0.905, 0.2), (0.99, 0.3)], 0.0, 3),
    ],
)
def test_which_epoch_is_kept(
    script: list[tuple[float, float]],
    required: float,
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper, model = Scripted(script, required), nn.Linear(1, 1)
    monkeypatch.setattr(
        "falconcal.training.selection.validation_criterion", lambda *_: next(keeper.script)
    )
    for epoch in range(1, len(script) + 1):
        with torch.no_grad():
            model.weight.fill_(epoch)
        keeper.check(model, epoch)
    assert keeper.best().epoch == kept
    assert keeper.best().weights["weight"].item() == kept


def test_ten_epochs_are_judged_and_the_last_among_them() -> None:
    assert EpochSelector([], 30).checked_epochs == {3, 6, 9, 12, 15, 18, 21, 24, 27, 30}
    assert EpochSelector([], 4).checked_epochs == {1, 2, 3, 4}


def test_keeping_the_best_epoch_gives_the_weights_that_were_judged_best(tiny: Dataset) -> None:
    validation = shifted_validation(tiny.validation, small_network(seed=1), [SHIFTS["contrast"]])
    history = History()
    with history.recording():
        model = Falcon(epochs=6, learning_rate=0.01, keep="best").fit(
            small_network(), tiny.train.batches(30), validation
        )
    judged = [record.validation for record in history]
    best = max(record["accuracy"] for record in judged)
    enough = [record for record in judged if record["accuracy"] >= best - 0.01]
    final = validation_criterion(model, validation)
    assert final.criterion == pytest.approx(min(record["criterion"] for record in enough))


def test_an_empty_validation_set_is_refused(tiny: Dataset) -> None:
    with pytest.raises(UserError, match="validation batch, got none"):
        Falcon(epochs=1, keep="best").fit(small_network(), tiny.train.batches(), [])


@pytest.mark.parametrize(
    ("patience", "ended", "epochs"), [(2, "patience", 5), (3, "epochs", 6), (None, "epochs", 6)]
)
def test_training_ends_when_no_better_epoch_came_for_so_long(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch, patience: int, ended: str, epochs: int
) -> None:
    script = iter([0.5, 0.4, 0.1, 0.2, 0.3, 0.2])  # the third is the best
    monkeypatch.setattr(
        "falconcal.training.selection.validation_criterion",
        lambda *_: CriterionResult(0.9, next(script)),
    )
    weights, history = [], History()
    model = small_network()
    with history.recording(), on_epoch(lambda _: weights.append(copy.deepcopy(model.state_dict()))):
        dropout = L2Dropout(epochs=6, keep="best", patience=patience, learning_rate=0.01)
        dropout.fit(model, tiny.train.batches(30), tiny.validation.batches())
    assert len(history) == epochs
    assert [record.ended for record in history] == [None] * (epochs - 1) + [ended]
    assert history[-1].kept == 3
    assert all(torch.equal(weights[2][name], value) for name, value in model.state_dict().items())


def test_patience_looks_at_every_epoch_and_keeps_the_best(tiny: Dataset) -> None:
    assert EpochSelector([], 30, patience=3).checked_epochs == set(range(1, 31))
    history = History()
    with history.recording():
        L2Dropout(epochs=30, patience=1, learning_rate=0.02).fit(
            small_network(), tiny.train.batches(30), tiny.validation.batches()
        )
    assert history[-1].kept is not None
    assert len(history) < 30
    assert history[-1].epoch - history[-1].kept == 1


def test_shifts_that_leave_the_bounds_are_judged_too(tiny: Dataset) -> None:
    outside = Shift("double", (0.0, 1.0), lambda inputs, *_: 2 * inputs)
    validation = shifted_validation(tiny.validation, small_network(seed=1), [outside])
    error = expected_calibration_error(
        predict(small_network(), [(2 * tiny.validation.inputs, tiny.validation.labels)])
    )
    assert validation_criterion(small_network(), validation).families["double"] == pytest.approx(
        error
    )


@pytest.mark.parametrize("modality", get_args(Modality))
def test_every_kind_of_data_has_families_to_choose_by(modality: str) -> None:
    """Without any, a criterion would be a mean of nothing."""
    assert set(FAMILIES[modality]) <= set(SHIFTS)
    assert len(FAMILIES[modality]) > 1
