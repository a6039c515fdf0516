"""FALCON's step in a loop of one's own: the same as ours, and a good guest."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file
from torch import Tensor, nn

from falconcal import Bounds, Falcon, FalconStep
from falconcal.data import Dataset, Examples
from falconcal.errors import UserError
from falconcal.models.predict import predict
from tests.helpers import own_processes
from tests.helpers.joined_training import plain_network
from tests.helpers.run_together import run_together
from tests.helpers.small_data import small_network

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
UNIT = Bounds(0.0, 1.0)
Train = Callable[[Falcon, nn.Module, Dataset], nn.Module]


def own_loop(falcon: Falcon, model: nn.Module, data: Dataset) -> nn.Module:
    """Train as a user would."""
    torch.manual_seed(falcon.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=falcon.learning_rate, fused=True)
    step, batches = FalconStep(model, optimizer, falcon), data.train.batches(25)
    for epoch in step.epochs():
        batches.set_epoch(epoch)
        for inputs, labels in batches:
            step(inputs, labels)
    return model.eval()


def built_in_loop(falcon: Falcon, model: nn.Module, data: Dataset) -> nn.Module:
    return falcon.fit(model, data.train.batches(25), data.validation.batches())


def with_statistics() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(6), nn.Flatten(),
        nn.Linear(64, 3),
    )  # fmt: skip


CASES = [
    {"gradient": "shared"},
    {"gradient": "exact"},
    {"calibration_fraction": 0.5},
    {"clip_norm": 0.1},
    {"accumulate": 2},
    {"statistics": "clean"},
    {"precision": "64-true"},
]


@pytest.mark.end_to_end
@pytest.mark.parametrize("changed", CASES, ids=str)
def test_the_step_is_the_loops_to_the_last_bit(tiny: Dataset, changed: dict[str, object]) -> None:
    falcon = Falcon(epochs=4, bounds=UNIT, **changed)  # type: ignore[arg-type]
    for make in (small_network, with_statistics):
        built_in, own = built_in_loop(falcon, make(), tiny), own_loop(falcon, make(), tiny)
        expected, found = built_in.state_dict(), own.state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.end_to_end
@pytest.mark.parametrize("train", [built_in_loop, own_loop])
def test_double_precision_is_that_of_a_double_model(tiny: Dataset, train: Train) -> None:
    """To the bit: losses and perturbed inputs are float64, not only the weights."""
    settings: dict[str, Any] = {"epochs": 2, "bounds": UNIT, "epsilons": (0.1,)}
    train_part = tiny.train
    assert isinstance(train_part, Examples)
    wide = replace(train_part, inputs=train_part.inputs.double())
    doubled = replace(tiny, train=wide)
    expected = train(Falcon(**settings), with_statistics().double(), doubled)
    found = train(Falcon(precision="64-true", **settings), with_statistics(), tiny)
    for name, weight in found.state_dict().items():
        assert torch.equal(weight, expected.state_dict()[name]), name


def test_a_fabric_that_would_compute_the_loss_in_float32_is_refused() -> None:
    model, fabric = small_network(), Fabric(accelerator="cpu", precision="64-true")
    with pytest.raises(UserError, match=r"float32 before the loss: give model.double\(\)"):
        FalconStep(model, torch.optim.SGD(model.parameters(), lr=0.1), fabric=fabric)


def test_nothing_is_left_behind(tiny: Dataset) -> None:
    model = with_statistics()
    model[1].eval()  # held by the user
    optimizer = torch.optim.Adam(model.parameters())
    step = FalconStep(model, optimizer, Falcon(bounds=UNIT, epochs=2))
    inputs, labels = tiny.train.inputs, tiny.train.labels
    statistics = model[1].running_mean.clone()
    terms = step(inputs, labels)
    assert set(terms) == {"clean/cross_entropy", "clean/entropy", "calibration/calibration"}
    assert [part.training for part in model.modules()] == [
        part is not model[1] for part in model.modules()
    ]
    assert torch.equal(model[1].running_mean, statistics)
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert not inputs.requires_grad


def test_running_statistics_see_clean_batches_alone_where_asked(tiny: Dataset) -> None:
    found = {}
    for kind in ("clean", "both"):
        model = with_statistics().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        falcon = Falcon(bounds=UNIT, statistics=kind, epsilons=(0.4,), calibration_weight=0.0)
        FalconStep(model, optimizer, falcon)(tiny.train.inputs, tiny.train.labels)
        found[kind] = model[1].running_mean
    plain = with_statistics().train()
    plain(tiny.train.inputs)
    torch.testing.assert_close(found["clean"], plain[1].running_mean)
    assert not torch.allclose(found["both"], plain[1].running_mean)


def test_schedulers_and_clipping_act_on_the_users_optimiser(tiny: Dataset) -> None:
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.0)
    falcon = Falcon(bounds=UNIT, calibration_fraction=0.0, dropout=None, epochs=2, clip_norm=1e-3)
    step = FalconStep(model, optimizer, falcon)
    before = [weight.detach().clone() for weight in model.parameters()]
    step(tiny.train.inputs, tiny.train.labels)
    moved = [now - then for now, then in zip(model.parameters(), before, strict=True)]
    assert torch.cat([part.flatten() for part in moved]).norm() <= 0.1 * 1e-3 * 1.01
    scheduler.step()  # to a learning rate of 0
    before = [weight.detach().clone() for weight in model.parameters()]
    step(tiny.train.inputs, tiny.train.labels)
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("size", [15, 21])
def test_parts_accumulated_are_the_whole(tiny: Dataset, size: int) -> None:
    """Without dropout, and without the second step, whose bins alone differ by the split."""
    parts, whole = small_network(), small_network()
    for model, most, count in ((parts, size, 2), (whole, 30, 1)):
        falcon = Falcon(
            bounds=UNIT, epochs=1, accumulate=count, dropout=None, calibration_weight=0.0
        )
        step = FalconStep(model.eval(), torch.optim.SGD(model.parameters(), lr=0.1), falcon)
        for inputs, labels in zip(
            tiny.train.inputs[:30].split(most), tiny.train.labels[:30].split(most), strict=True
        ):
            step(inputs, labels)
    for one, other in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, other)


FUSED: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, lr=0.01),
    "amsgrad": partial(torch.optim.AdamW, lr=0.01, amsgrad=True),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1),
}


@pytest.mark.end_to_end
@pytest.mark.parametrize("again", [False, True], ids=["held", "loaded"])
@pytest.mark.parametrize("name", FUSED)
def test_an_optimiser_that_holds_state_goes_on_as_it_would(
    tiny: Dataset, name: str, again: bool
) -> None:
    """Three plain steps, then three with both of FALCON's weights 0: six plain ones."""
    inputs, labels = tiny.train.inputs.double(), tiny.train.labels
    falcon = Falcon(bounds=UNIT, epochs=1, entropy_weight=0.0, calibration_weight=0.0)
    plain, ours = two_convolutions(), two_convolutions()
    expected = FUSED[name](plain.parameters(), fused=False)
    optimizer = FUSED[name](ours.parameters(), fused=True)
    for _ in range(6):
        plain_step(plain, expected, inputs, labels)
    for _ in range(3):
        plain_step(ours, optimizer, inputs, labels)
    stored = copy.deepcopy(optimizer.state_dict())
    step = FalconStep(ours, optimizer, falcon)
    if again:
        optimizer.load_state_dict(stored)
    for _ in range(3):
        step(inputs, labels)
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def two_convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AvgPool2d(11),
        nn.Flatten(), nn.Linear(24, 3),
    ).double()  # fmt: skip


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor
) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()


@pytest.mark.end_to_end
def test_it_learns_on_any_device(tiny: Dataset, device: torch.device) -> None:
    model = small_network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = FalconStep(model, optimizer, Falcon(bounds=UNIT, epochs=20, entropy_weight=0.1))
    for _ in step.epochs():
        for inputs, labels in tiny.train.batches(25):
            step(inputs.to(device), labels.to(device))
    assert predict(model, tiny.test).scores().correct.double().mean() > 0.9


def test_what_is_missing_is_said(tiny: Dataset) -> None:
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UserError, match="range of the inputs"):
        FalconStep(model, optimizer)(tiny.train.inputs, tiny.train.labels)
    step = FalconStep(model, optimizer, Falcon(bounds=UNIT, epochs=2))
    step.epoch = 3
    with pytest.raises(UserError, match="from 1 to 2, got 3"):
        step(tiny.train.inputs, tiny.train.labels)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64])
def test_labels_of_any_whole_type_will_do(tiny: Dataset, dtype: torch.dtype) -> None:
    model = small_network()
    step = FalconStep(model, torch.optim.Adam(model.parameters()), Falcon(bounds=UNIT))
    inputs, labels = next(iter(tiny.train.batches(10)))
    assert step(inputs, labels.to(dtype))["clean/cross_entropy"] > 0
    with pytest.raises(UserError, match="a true class for every example"):
        step(inputs, torch.full((10,), -1))
    with pytest.raises(UserError, match="expected inputs from 0 to 1, got -2"):
        step(6 * inputs - 3, labels)


def test_dropout_is_set_and_what_only_fit_can_do_is_refused() -> None:
    model = small_network()
    FalconStep(model, torch.optim.Adam(model.parameters()), Falcon(bounds=UNIT, dropout=0.4))
    (layer,) = [layer for layer in model.modules() if isinstance(layer, nn.Dropout)]
    assert layer.p == 0.4
    for changed in ({"keep": "best"}, {"patience": 1}, {"average": 0.9}):
        with pytest.raises(UserError, match="in a loop of your own"):
            FalconStep(model, torch.optim.Adam(model.parameters()), Falcon(**changed))


@pytest.mark.end_to_end
def test_processes_that_torchrun_started_train_one_model_together(tmp_path: Path) -> None:
    """In one's own DDP the bins are the whole batch's; ``fit`` joins by itself."""
    run_together(2, "-m", "tests.helpers.own_processes", str(tmp_path / "weights"))
    together = load_file(tmp_path / "weights")
    assert int(together["processes"]) == 2
    alone = {"fit": plain_network(), "own_loop": plain_network()}
    own_processes.fit(alone["fit"])
    own_processes.own_loop(alone["own_loop"], 1, 0)
    for kind, network in alone.items():
        for name, value in network.state_dict().items():
            torch.testing.assert_close(together[f"{kind}/{name}"], value, atol=1e-5, rtol=1e-4)


def test_a_loop_goes_on_where_its_state_was_taken(tiny: Dataset) -> None:
    falcon = Falcon(epochs=3, bounds=UNIT)
    batches = list(tiny.train.batches(30))

    def steps(model: nn.Module) -> FalconStep:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return FalconStep(model, optimizer, falcon)

    def network() -> Any:
        model = small_network()
        model[4] = nn.Identity()  # masks of dropout come from the caller's random numbers
        return model

    whole = network()
    for _ in (step := steps(whole)).epochs():
        for batch in batches:
            step(batch)
    broken = network()
    for epoch in (step := steps(broken)).epochs():
        for batch in batches:
            step(*batch)
        if epoch == 1:
            break
    state = copy.deepcopy(step.state_dict())
    again = steps(broken)
    again.load_state_dict(state)
    assert [epoch for epoch in again.epochs() for batch in batches if again(batch)][::3] == [2, 3]
    for one, other in zip(whole.parameters(), broken.parameters(), strict=True):
        assert torch.equal(one, other)


def test_no_state_is_taken_while_batches_wait(tiny: Dataset) -> None:
    model = small_network()
    falcon = Falcon(epochs=1, bounds=UNIT, accumulate=2)
    step = FalconStep(model, torch.optim.Adam(model.parameters()), falcon)
    for _ in step.epochs():
        step(next(iter(tiny.train.batches(30))))
        with pytest.raises(UserError, match="1 of accumulate=2"):
            step.state_dict()
