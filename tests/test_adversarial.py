"""FGSM against autograd and values worked by hand."""

import torch
from torch import nn
from torch.nn import functional

from falconcal.data import Bounds
from falconcal.entrance import input_gradient
from falconcal.shifts.adversarial import fgsm
from tests.conftest import small_network, stripes


def test_fgsm_moves_each_value_up_the_loss_by_epsilon_of_the_range() -> None:
    model, data = small_network().eval(), stripes(6)
    inputs = data.inputs.clone().requires_grad_()
    functional.cross_entropy(model(inputs), data.labels).backward()
    assert inputs.grad is not None
    expected = (data.inputs + 0.1 * inputs.grad.sign()).clamp(0, 1)
    ours = fgsm(model, data.inputs, data.labels, 0.1, data.bounds)
    torch.testing.assert_close(ours, expected)


def test_bounds_scale_epsilon_and_clip() -> None:
    model, inputs, labels = nn.Linear(1, 2), torch.tensor([[9.0], [-9.5]]), torch.tensor([0, 0])
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0]]))  # more input, less of class 0: uphill is +
    moved = fgsm(model, inputs, labels, 0.1, Bounds(-10.0, 10.0))
    torch.testing.assert_close(moved, torch.tensor([[10.0], [-7.5]]))
    free = fgsm(model, inputs, labels, 0.1, None)
    torch.testing.assert_close(free, torch.tensor([[9.1], [-9.4]]))


def test_the_model_is_left_as_it_was() -> None:
    model, data = small_network().train(), stripes(6)
    model[3].eval()
    input_gradient(model, data.inputs, data.labels)
    assert model.training
    assert not model[3].training
    assert all(weight.grad is None for weight in model.parameters())
    assert data.inputs.grad is None
