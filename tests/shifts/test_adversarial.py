"""FGSM against autograd and values worked by hand."""

import itertools

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

from falconcal.core.perturbation_point import input_gradient
from falconcal.data import Bounds, Dataset
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import score_under_shift
from falconcal.models.predict import predict
from falconcal.shifts import SHIFTS
from falconcal.shifts.fgsm import EPSILONS, fgsm
from tests.helpers.small_data import small_network, stripes


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


def test_fgsm_as_a_shift_follows_the_evaluated_model(tiny: Dataset) -> None:
    data, shift = tiny.test, SHIFTS["fgsm"]
    scores = score_under_shift(small_network(), data, [shift, SHIFTS["contrast"] | shift])
    model = small_network()
    for level, epsilon in enumerate(EPSILONS[1:], start=1):
        attacked = fgsm(model, data.inputs, data.labels, epsilon, data.bounds)
        given = shift.at(data.inputs, level, model=model, labels=data.labels, bounds=data.bounds)
        assert torch.equal(attacked, given)
        found = scores.filter(shift="fgsm", level=level)
        expected = predict(model, data.repeated(attacked)).scores()
        numpy.testing.assert_allclose(found["confidence"], expected.confidence, atol=1e-6)
    paler = SHIFTS["contrast"].at(data.inputs, 2)
    attacked = fgsm(model, paler, data.labels, 0.1, data.bounds)
    expected = predict(model, data.repeated(attacked)).scores()
    found = scores.filter(shift="contrast | fgsm", level=2)
    numpy.testing.assert_allclose(found["confidence"], expected.confidence, atol=1e-6)


def test_fgsm_as_a_shift_meets_the_contract(tiny: Dataset) -> None:
    data, shift, model = tiny.test, SHIFTS["fgsm"], small_network()
    moved = [
        shift.at(data.inputs, level, model=model, labels=data.labels, bounds=data.bounds)
        for level in shift.levels
    ]
    assert torch.equal(moved[0], data.inputs)
    distances = [float((images - data.inputs).abs().mean()) for images in moved]
    assert all(near < far for near, far in itertools.pairwise(distances))
    parts = [
        shift.at(data.inputs[part], 4, model=model, labels=data.labels[part], bounds=data.bounds)
        for part in (slice(0, 7), slice(7, 30))
    ]
    assert torch.equal(torch.cat(parts), moved[4])
    assert moved[9].min() >= 0
    assert moved[9].max() <= 1


def test_fgsm_as_a_shift_says_what_it_lacks(tiny: Dataset) -> None:
    inputs, model = tiny.test.inputs, small_network()
    with pytest.raises(UserError, match="fgsm needs the model"):
        SHIFTS["fgsm"].at(inputs, 1, labels=tiny.test.labels)
    with pytest.raises(UserError, match="fgsm needs the labels"):
        SHIFTS["fgsm"].at(inputs, 1, model=model)
    with pytest.raises(UserError, match="labels of -1"):
        SHIFTS["fgsm"].at(inputs, 1, model=model, labels=-torch.ones(30).long())
    with pytest.raises(UserError, match="choose a word shift"):
        SHIFTS["fgsm"].at(torch.ones(3, 4).long(), 1, model=model, labels=torch.zeros(3).long())
