"""Losses, weights, optimisers and schedules of one's own."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.data import Bounds, ChannelBounds, Dataset, Loader
from falconcal.errors import UserError
from falconcal.methods import METHODS, Ensemble, Falcon, Focal, L2Dropout, LabelSmoothing
from falconcal.models.predict import predict
from falconcal.recalibration import Temperature
from falconcal.shifts.fgsm import fgsm
from falconcal.training import Recipe, Step, checkpointing, on_epoch
from falconcal.training.losses import calibration_loss
from falconcal.training.recipe import ExampleLoss, balanced_weights
from tests.helpers.small_data import small_network

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.5, 1.5, 0.0], [0.0, 0.2, 0.1], [1.0, 1.0, 3.0]])
LABELS = torch.tensor([0, 2, 1, 2])
WEIGHTS = torch.tensor([1.0, 2.0, 0.0, 0.5])


class StoppedError(Exception):
    """Ends a training from outside."""


def step_of(**given: Any) -> Step:
    inputs = torch.zeros(4, 2)
    return Step(nn.Linear(2, 3), inputs, LABELS, 1, 2, torch.Generator(), **given)


def trained(method: Any, tiny: Dataset, train: Any = None, **options: Any) -> dict[str, Tensor]:
    batches = tiny.train.batches(30, shuffle=True) if train is None else train
    return copy.deepcopy(method.fit(small_network(), batches, **options).state_dict())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_class_weights_multiply_the_loss_of_their_examples() -> None:
    factors = torch.tensor([1.0, 3.0, 0.5])
    loss = ExampleLoss(class_weights=factors)
    step = step_of(weights=loss.weights(LABELS, None), base_loss=loss)
    expected = functional.cross_entropy(LOGITS, LABELS, weight=factors, reduction="sum") / 4
    torch.testing.assert_close(step.cross_entropy(LOGITS), expected)


def test_smoothing_and_soft_labels_are_those_of_torch() -> None:
    smooth = step_of(base_loss=ExampleLoss(smoothing=0.2)).cross_entropy(LOGITS)
    expected = functional.cross_entropy(LOGITS, LABELS, label_smoothing=0.2)
    torch.testing.assert_close(smooth, expected)
    targets = torch.rand(4, 3).softmax(1)
    soft = step_of(targets=targets).cross_entropy(LOGITS)
    torch.testing.assert_close(soft, -(targets * LOGITS.log_softmax(1)).sum(1).mean())
    rows = torch.tensor([3, 2, 1, 0])
    mixed = step_of(targets=targets).cross_entropy(LOGITS, rows)
    torch.testing.assert_close(mixed, functional.cross_entropy(LOGITS, targets[rows]))


def test_a_whole_weight_in_the_calibration_loss_counts_an_example_so_many_times() -> None:
    times = torch.tensor([1, 2, 0, 3])
    weighted = calibration_loss(LOGITS, LABELS, bins=3, weights=times.float())
    repeated = calibration_loss(
        LOGITS.repeat_interleave(times, 0), LABELS.repeat_interleave(times), bins=3
    )
    torch.testing.assert_close(weighted, repeated)


def test_a_loss_of_ones_own_is_used_and_checked(tiny: Dataset) -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none")

    plain, own = trained(L2Dropout(epochs=1), tiny), trained(L2Dropout(epochs=1), tiny, loss=loss)
    for name in plain:
        torch.testing.assert_close(plain[name], own[name], rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match="one loss per example"):
        trained(L2Dropout(epochs=1), tiny, loss=functional.cross_entropy)


def test_label_smoothing_by_keyword_is_the_method_of_that_name(tiny: Dataset) -> None:
    by_name = trained(LabelSmoothing(epochs=1, smoothing=0.1), tiny)
    by_keyword = trained(L2Dropout(epochs=1), tiny, label_smoothing=0.1)
    for name in by_name:
        torch.testing.assert_close(by_name[name], by_keyword[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [Falcon(epochs=1), L2Dropout(epochs=1), Focal(epochs=1)])
def test_weights_of_1_change_nothing_and_of_0_leave_examples_out(
    method: Any, tiny: Dataset
) -> None:
    (inputs, labels), bounds = next(iter(tiny.train.batches(30))), Bounds(0, 1)
    half = torch.cat([torch.ones(15), torch.zeros(15)])
    whole = trained(method, tiny, Loader([(inputs, labels)], bounds=bounds))
    ones = [(inputs, labels, torch.ones(30))]
    assert_near(whole, trained(method, tiny, Loader(ones, weights="last", bounds=bounds)))
    torch.manual_seed(1)
    changed = inputs.clone()
    changed[15:] = torch.rand_like(inputs[15:])  # what does not count may be anything
    network = small_network()
    network[4] = nn.Identity()  # the same masks of dropout would fall on other examples
    both = [copy.deepcopy(network).train() for _ in range(2)]
    for model, given in zip(both, (inputs, changed), strict=True):
        loader = Loader([(given, labels, half)], weights="last", bounds=bounds)
        method.fit(model, loader)
    assert_near(both[0].state_dict(), both[1].state_dict())


def assert_near(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-5)


def test_balanced_weights_make_all_classes_weigh_alike() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    weights = balanced_weights([(torch.zeros(4, 1), labels)])
    torch.testing.assert_close(weights, torch.tensor([4 / 6, 2.0]))
    mass = [float(weights[labels[labels == one]].sum()) for one in (0, 1)]
    assert mass[0] == pytest.approx(mass[1])


def test_optimiser_and_schedule_are_the_ones_given(tiny: Dataset) -> None:
    """One step of plain SGD by hand, its learning rate warmed up to the half."""
    inputs, labels = next(iter(tiny.train.batches(30)))
    model = small_network()
    model[4] = nn.Identity()
    expected = copy.deepcopy(model)
    functional.cross_entropy(expected(inputs), labels).backward()
    with torch.no_grad():
        for weight in expected.parameters():
            assert weight.grad is not None
            weight.sub_(0.5 * 0.1 * weight.grad)
    L2Dropout(epochs=1).fit(
        model,
        [(inputs, labels)],
        optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1),
        warmup_steps=2,
    )
    assert_near(dict(model.named_parameters()), dict(expected.named_parameters()))


def test_a_schedule_begins_after_the_warm_up() -> None:
    weights = [nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(weights, lr=1.0)
    recipe = Recipe(
        warmup_steps=2,
        scheduler=lambda one: torch.optim.lr_scheduler.LambdaLR(one, lambda step: 0.1**step),
    )
    schedule = recipe.schedule(optimizer)
    assert schedule is not None
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.1, 0.01])


@pytest.mark.end_to_end
def test_a_training_goes_on_with_its_schedule(tiny: Dataset, tmp_path: Path) -> None:
    options = {
        "scheduler": lambda one: torch.optim.lr_scheduler.StepLR(one, 3, gamma=0.5),
        "warmup_steps": 2,
    }
    method = L2Dropout(epochs=4)
    whole = trained(method, tiny, **options)

    def stop(record: Any) -> None:
        if record.epoch == 2:
            raise StoppedError

    with checkpointing(tmp_path), pytest.raises(StoppedError), on_epoch(stop):
        trained(method, tiny, **options)
    with checkpointing(tmp_path):
        assert same(trained(method, tiny, **options), whole)


def test_validation_data_may_be_left_out_where_nothing_needs_it(tiny: Dataset) -> None:
    records: list[Any] = []
    with on_epoch(records.append):
        Falcon(epochs=1).fit(small_network(), tiny.train.batches(30))
    assert len(records) == 1
    with pytest.raises(UserError, match="needs validation="):
        Falcon(epochs=1, keep="best").fit(small_network(), tiny.train.batches(30))


def test_what_builds_on_a_method_passes_the_keywords_on(tiny: Dataset) -> None:
    def refuse(_: Any) -> Any:
        raise RuntimeError("asked")

    parts = tiny.train.batches(30), tiny.validation.batches()
    for method in (Ensemble(base=L2Dropout(epochs=1)), Temperature(base=L2Dropout(epochs=1))):
        with pytest.raises(RuntimeError, match="asked"):
            method.fit(small_network(), *parts, optimizer=refuse)
    with pytest.raises(UserError, match="only with a base"):
        Temperature().fit(small_network(), *parts, optimizer=refuse)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimiser": 1}, "fit takes optimizer"),
        ({"optimizer": 3}, "to be a function"),
        ({"warmup_steps": -1}, "0 or more"),
        ({"label_smoothing": 1.0}, "below 1"),
        ({"class_weights": [[1.0]]}, "one number of 0 or more per class"),
        ({"class_weights": [1.0, 1.0]}, "one class weight per class"),
        ({"optimizer": lambda weights: weights}, "to make an optimiser"),
        (
            {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau},
            "a scheduler that needs no metric",
        ),
    ],
)
def test_wrong_keywords_are_refused(options: dict[str, Any], message: str, tiny: Dataset) -> None:
    with pytest.raises(UserError, match=message):
        trained(L2Dropout(epochs=1), tiny, **options)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["falcon", "dropout", "focal", "evidential", "mixup", "svi"])
def test_class_weights_move_predictions_towards_their_class(name: str, tiny: Dataset) -> None:
    means = []
    for weights in ([1.0, 1.0, 1.0], [8.0, 1.0, 1.0]):
        method: Any = METHODS[name](epochs=2)
        model = method.fit(small_network(), tiny.train.batches(30), class_weights=weights)
        means.append(float(predict(model, tiny.test).log_probs.exp()[:, 0].mean()))
    assert means[1] > means[0]


def test_bounds_per_channel_scale_and_clip_each_by_its_own() -> None:
    bounds = ChannelBounds((0.0, -1.0), (1.0, 9.0))
    inputs = torch.tensor([[[[0.5]], [[4.0]]]])
    last = nn.Linear(2, 2)
    model = nn.Sequential(nn.Flatten(), last)
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
    moved = fgsm(model, inputs, torch.tensor([0]), 0.1, bounds)
    torch.testing.assert_close(moved.flatten(), torch.tensor([0.4, 3.0]))
    far = fgsm(model, inputs, torch.tensor([0]), 0.9, bounds)
    torch.testing.assert_close(far.flatten(), torch.tensor([0.0, -1.0]))
    assert (bounds.low, bounds.high) == (-1.0, 9.0)
    with pytest.raises(UserError, match="each channel's range"):
        bounds.check(torch.tensor([[[[1.5]], [[4.0]]]]))
    with pytest.raises(UserError, match="of 2 channels"):
        bounds.clip(torch.zeros(1, 3, 1, 1))


def test_one_range_for_all_channels_is_the_plain_one() -> None:
    inputs = torch.rand(4, 3, 5, 5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(75, 2))
    labels = torch.tensor([0, 1, 0, 1])
    plain = fgsm(model, inputs, labels, 0.3, Bounds(0, 1))
    assert torch.equal(fgsm(model, inputs, labels, 0.3, ChannelBounds([0] * 3, [1] * 3)), plain)
