"""The kernel alone does what the optimiser's step does, to the bit, and gives way to all else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim import optimizer as torch_optimizer
from torch.optim.lr_scheduler import ExponentialLR

from falconcal.training import fused_kernels
from falconcal.training.fused_kernels import forget_gradients, take_step

MAKERS: dict[str, Callable[[Any], Optimizer]] = {
    "adam": lambda weights: Adam(weights, lr=0.01, fused=True),
    "decay": lambda weights: Adam(weights, lr=0.01, weight_decay=0.1, maximize=True, fused=True),
    "amsgrad": lambda weights: Adam(weights, lr=0.01, amsgrad=True, fused=True),
    "not fused": lambda weights: Adam(weights, lr=0.01),
    "sgd": lambda weights: SGD(weights, lr=0.1, weight_decay=0.1, fused=True),
    "momentum": lambda weights: SGD(weights, lr=0.1, momentum=0.9, fused=True),
    "groups": lambda weights: Adam([{"params": [one]} for one in weights], lr=0.01, fused=True),
    "other": lambda weights: torch.optim.RMSprop(weights, lr=0.01),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def backward(model: nn.Module, number: int) -> None:
    inputs = torch.rand(8, 5, generator=torch.Generator().manual_seed(number))
    model(inputs).square().sum().backward()


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_it_takes_the_optimisers_step_to_the_bit(name: str, scheduled: bool) -> None:
    quick, usual = network(), network()
    ours, theirs = (MAKERS[name](list(model.parameters())) for model in (quick, usual))
    schedules = [ExponentialLR(one, 0.8) for one in (ours, theirs)] if scheduled else []
    for number in range(4):
        forget_gradients(ours)
        theirs.zero_grad()
        backward(quick, number)
        backward(usual, number)
        take_step(ours)
        theirs.step()
        for schedule in schedules:
            schedule.step()
    for one, other in zip(quick.parameters(), usual.parameters(), strict=True):
        assert torch.equal(one, other)
    states = (optimizer.state_dict()["state"] for optimizer in (ours, theirs))
    for mine, its in zip(*(state.values() for state in states), strict=True):
        assert all(torch.equal(mine[key], its[key]) for key in mine if mine[key] is not None)
    assert not torch.equal(next(quick.parameters()), next(network().parameters()))


def test_a_weight_without_gradient_stays() -> None:
    model = network()
    optimizer = MAKERS["adam"](list(model.parameters()))
    backward(model, 0)
    take_step(optimizer)
    last = list(model.parameters())[-1]
    kept = last.detach().clone()
    forget_gradients(optimizer)
    backward(model, 1)
    last.grad = None
    take_step(optimizer)
    assert torch.equal(last, kept)


def test_hooks_of_the_optimiser_are_called() -> None:
    model, called = network(), []
    optimizer = MAKERS["sgd"](list(model.parameters()))
    optimizer.register_step_post_hook(lambda *_: called.append(True))
    backward(model, 0)
    take_step(optimizer)
    assert called == [True]


def test_weights_of_two_types_are_stepped() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2).double()
    weights = [*first.parameters(), *second.parameters()]
    before = [weight.detach().clone() for weight in weights]
    optimizer = MAKERS["adam"](weights)
    for _ in range(2):
        forget_gradients(optimizer)
        (first(torch.ones(1, 2)).sum() + second(torch.ones(1, 2).double()).sum()).backward()
        take_step(optimizer)
    assert all(not torch.equal(old, new) for old, new in zip(before, weights, strict=True))


def test_the_kernel_alone_is_used_for_plain_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    optimizer = MAKERS["adam"](list(model.parameters()))
    for number in range(2):  # the first makes the state
        forget_gradients(optimizer)
        backward(model, number)
        if number == 1:
            monkeypatch.setattr(Adam, "step", lambda _: pytest.fail("the whole step was taken"))
        take_step(optimizer)


def test_without_torchs_private_names_the_optimiser_takes_its_own_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, taken = network(), []
    optimizer = MAKERS["sgd"](list(model.parameters()))
    monkeypatch.delattr(torch_optimizer, "_global_optimizer_pre_hooks")
    monkeypatch.setattr(SGD, "step", lambda _: taken.append(True))
    backward(model, 0)
    take_step(optimizer)
    assert taken == [True]


def test_a_torch_that_lacks_a_kernel_has_none() -> None:
    assert fused_kernels.kernels_of(torch) == fused_kernels.KERNELS
    assert set(fused_kernels.KERNELS) == {Adam, SGD}
    assert fused_kernels.kernels_of(object()) == {}
