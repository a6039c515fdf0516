"""Every network of the table under one contract."""

import pytest
import torch
from torch import nn

from falconcal.data import Dataset, load_dataset
from falconcal.models import MODELS, LeNet, make_model


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.mark.parametrize("name", MODELS)
def test_it_gives_logits_and_gradients_reach_every_weight(name: str, digits: Dataset) -> None:
    model = make_model(name, digits)
    logits = model(digits.train.inputs[:5])
    assert logits.shape == (5, 10)
    nn.functional.cross_entropy(logits, digits.train.labels[:5]).backward()
    for weight in model.parameters():
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", MODELS)
def test_its_first_weights_depend_on_the_seed_alone(name: str, digits: Dataset) -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, again, other = (make_model(name, digits, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    same = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in same)
    different = zip(first.parameters(), other.parameters(), strict=True)
    assert not all(torch.equal(one, two) for one, two in different)


def test_lenet_has_the_papers_size() -> None:
    assert sum(weight.numel() for weight in LeNet().parameters()) == 369_174


def test_lenet_takes_other_images() -> None:
    assert LeNet(classes=4, channels=3, size=32)(torch.rand(2, 3, 32, 32)).shape == (2, 4)
