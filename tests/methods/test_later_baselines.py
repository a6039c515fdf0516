"""Entropy and smoothing, RegMixup, AugMix and SNGP against plain training and closed forms."""

import math
from itertools import pairwise
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.core.method import build_untrained
from falconcal.data import Bounds, Dataset, Examples
from falconcal.errors import UserError
from falconcal.methods import SNGP, AugMix, EntropySmoothing, L2Dropout, Mixup, RegMixup
from falconcal.methods.augmix import augmix_terms, divergence_from_mean
from falconcal.methods.augmix_operations import GEOMETRIC_OPERATIONS, PLAIN_OPERATIONS, translate
from falconcal.methods.entropy_smoothing import entropy_smoothing_terms
from falconcal.methods.reg_mixup import reg_mixup_terms
from falconcal.methods.sngp import RandomFeatureHead, SNGPModel, find_covariance
from falconcal.studies.study_reading import read_study
from falconcal.training import Step
from falconcal.training.objectives import clean_terms
from tests.helpers.small_data import stripes

OPERATIONS = PLAIN_OPERATIONS + GEOMETRIC_OPERATIONS


def still_network(outputs: int = 3) -> nn.Sequential:
    """Return a network without dropout."""
    torch.manual_seed(0)
    layers = nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 16), nn.ReLU(), nn.Linear(16, outputs)
    return nn.Sequential(*layers)


def step(outputs: int = 3) -> Step:
    data = stripes(30)
    random = torch.Generator().manual_seed(0)
    bounds = Bounds(0.0, 1.0)
    labels = data.labels % outputs
    return Step(still_network(outputs), data.inputs, labels, 1, 20, random, bounds=bounds)


def weights_after(method: Any, tiny: Dataset) -> dict[str, Tensor]:
    fitted = method.fit(still_network(), tiny.train.batches(30), tiny.validation.batches())
    state: dict[str, Tensor] = fitted.state_dict()
    return state


SETTINGS: dict[str, Any] = {"epochs": 3, "learning_rate": 0.01}


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_entropy_and_smoothing_of_0_are_cross_entropy_to_the_bit(classes: int) -> None:
    method = EntropySmoothing(smoothing=0.0, entropy_weight=0.0)
    ours, plain = entropy_smoothing_terms(method, step(classes)), clean_terms(method, step(classes))
    assert list(ours) == list(plain)
    assert torch.equal(ours["cross_entropy"], plain["cross_entropy"])


def test_entropy_by_hand() -> None:
    """Logits of the odds 3 to 1: sum p log p = 0.75 log 0.75 + 0.25 log 0.25."""
    method = EntropySmoothing(smoothing=0.0, entropy_weight=2.0)
    model = nn.Identity()
    batch = torch.tensor([[math.log(3), 0.0]]), torch.tensor([0])
    terms = entropy_smoothing_terms(method, Step(model, *batch, 1, 20, torch.Generator()))
    expected = 2 * (0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert terms["entropy"].item() == pytest.approx(expected, rel=1e-6)
    assert terms["cross_entropy"].item() == pytest.approx(-math.log(0.75), rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_reg_mixup_that_blends_nothing_is_cross_entropy_twice(classes: int) -> None:
    terms = reg_mixup_terms(RegMixup(alpha=0.0), step(classes))
    plain = clean_terms(RegMixup(), step(classes))["cross_entropy"]
    torch.testing.assert_close(terms["cross_entropy"], plain, rtol=1e-6, atol=0)
    torch.testing.assert_close(terms["mixed"], plain, rtol=1e-6, atol=0)


def test_reg_mixup_is_plain_training_plus_mixup() -> None:
    """Of the same batch and the same random numbers."""
    both = reg_mixup_terms(RegMixup(alpha=10.0, mixed_weight=0.5), step())
    mixed = Mixup(alpha=10.0).objectives()[0].terms(step())["cross_entropy"]
    torch.testing.assert_close(both["mixed"], 0.5 * mixed, rtol=1e-5, atol=0)


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_augmix_without_strength_has_no_divergence(classes: int) -> None:
    terms = augmix_terms(AugMix(strength=0.0), step(classes))
    assert terms["agreement"].item() == pytest.approx(0.0, abs=1e-6)
    plain = clean_terms(AugMix(), step(classes))["cross_entropy"]
    torch.testing.assert_close(terms["cross_entropy"], plain)


def test_augmix_without_strength_is_plain_training(tiny: Dataset) -> None:
    ours = weights_after(AugMix(strength=0.0, agreement_weight=0.0, **SETTINGS), tiny)
    plain = weights_after(L2Dropout(**SETTINGS), tiny)
    for name, weight in plain.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 5, 1000])
def test_the_divergence_is_that_of_torch(classes: int) -> None:
    torch.manual_seed(1)
    logits = [torch.randn(20, classes) for _ in range(3)]
    probs = [one.softmax(1) for one in logits]
    mean = torch.stack(probs).mean(0).log()
    expected = sum(functional.kl_div(mean, one, reduction="batchmean") for one in probs) / 3
    torch.testing.assert_close(divergence_from_mean(logits), torch.as_tensor(expected))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)
def test_an_operation_changes_nothing_at_strength_0_and_stays_in_range(operation: Any) -> None:
    images = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(operation(images, torch.zeros(8)), images, rtol=0, atol=1e-6)
    for sign in (-1, 1):
        changed = operation(images, torch.full((8,), 1.0 * sign))
        assert changed.min() >= -1e-6
        assert changed.max() <= 1 + 1e-6
        assert (changed - images).abs().max() > 0.01
    flat = torch.full((2, 1, 4, 4), 0.5)
    assert operation(flat, torch.ones(2)).isfinite().all()


def test_some_operations_by_hand() -> None:
    autocontrast, equalise, posterise, solarise = PLAIN_OPERATIONS
    row = torch.tensor([0.2, 0.4, 0.4, 0.6]).reshape(1, 1, 1, 4)
    whole = torch.ones(1)
    found = autocontrast(row, whole).flatten().tolist()
    assert found == pytest.approx([0, 0.5, 0.5, 1], abs=1e-5)
    assert equalise(row, whole).flatten().tolist() == pytest.approx([0, 2 / 3, 2 / 3, 1])
    coarse = posterise(row, whole).flatten()  # 4 bits are left: steps of 1/15
    assert coarse.tolist() == pytest.approx([3 / 15, 6 / 15, 6 / 15, 9 / 15])
    assert solarise(row, whole / 2).flatten().tolist() == pytest.approx([0.2, 0.4, 0.4, 0.4])
    wide = torch.zeros(1, 1, 3, 100)
    wide[..., 50] = 1.0
    moved = translate(wide, -whole)  # a third to the right
    assert int(moved[0, 0, 1].argmax()) == 83


def test_augmix_draws_images_between_clean_and_chains() -> None:
    first, second = (augmix_terms(AugMix(strength=1.0), step())["agreement"] for _ in range(2))
    assert torch.equal(first, second)  # from the batch's own random numbers
    assert first > 0


def test_augmix_needs_images_and_their_range() -> None:
    rows = Examples(torch.rand(30, 4), torch.arange(30) % 3)
    with pytest.raises(UserError, match=r"the range of the inputs|augmix needs images"):
        AugMix(epochs=1).fit(nn.Linear(4, 3), rows.batches(10), rows.batches(10))


STUDY = """
name = "small"
dataset = "digits"
model = "mlp"
shifts = ["{shift}"]
[methods.augmix]
geometric = {geometric}
"""


def test_geometric_operations_are_refused_where_affine_shifts_are_tested() -> None:
    with pytest.raises(UserError, match="are kin of shear, which the study tests"):
        read_study(STUDY.format(shift="shear", geometric="true"), "test")
    for shift, geometric in (("shear", "false"), ("wave", "true")):
        assert read_study(STUDY.format(shift=shift, geometric=geometric), "test")


# SNGP


def blobs(count: int = 200) -> Examples:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(count) % 2
    centres = torch.tensor([[-2.0, 0.0], [2.0, 0.0]])[labels]
    return Examples(centres + 0.5 * torch.randn(count, 2, generator=generator), labels)


def test_the_variance_grows_along_a_ray_away_from_two_blobs() -> None:
    """The head looks at the points themselves, and is unsure of all of them as yet."""
    torch.manual_seed(0)
    model = SNGPModel(RandomFeatureHead(nn.Linear(2, 2), 2048, 2.0))
    find_covariance(model, blobs().batches(50))
    ray = torch.stack([torch.linspace(2, 12, 12), torch.zeros(12)], 1)  # from the middle of one
    with torch.no_grad():
        variances = model.head.variance(model.head.features(ray))
    away = variances.tolist()
    assert all(later > earlier - 0.05 for earlier, later in pairwise(away))
    assert away[-1] > 10 * away[0]
    assert max(away) <= 1.2  # the prior's is Phi' Phi, about 1


def head(features: int = 64, classes: int = 3) -> RandomFeatureHead:
    torch.manual_seed(1)
    return RandomFeatureHead(nn.Linear(4, classes), features, 1.0)


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_without_covariance_the_logits_are_plain(classes: int) -> None:
    inputs, made = torch.randn(10, 4), head(classes=classes)
    with torch.no_grad():
        assert torch.equal(made.eval()(inputs), made.train()(inputs))


def test_random_features_give_the_gaussian_kernel() -> None:
    """Phi(a)' Phi(b) is exp(-|a - b|^2 / (2 l^2 width)) as D grows (Rahimi & Recht, 2007)."""
    made, inputs = head(6000), torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    features = made.features(inputs)
    distances = torch.cdist(inputs, inputs).square()
    torch.testing.assert_close(features @ features.T, (-distances / 8).exp(), atol=0.06, rtol=0)


def test_the_covariance_and_the_prediction_by_their_definitions() -> None:
    data = Examples(
        torch.randn(25, 4, generator=torch.Generator().manual_seed(4)), torch.zeros(25).long()
    )
    model = SNGPModel(head(16))
    find_covariance(model, data.batches(7))
    features = model.head.features(data.inputs).double()
    probs = model.head.output(features.float()).softmax(1).detach().double().amax(1)
    precision = numpy.eye(16)
    for row, prob in zip(features.numpy(), probs.numpy(), strict=True):
        precision += prob * (1 - prob) * numpy.outer(row, row)
    expected = torch.from_numpy(numpy.linalg.inv(precision)).float()
    torch.testing.assert_close(model.head.covariance, expected, atol=1e-5, rtol=0)
    variance = (features @ expected.double() * features).sum(1)
    plain = model.head.output(features.float())
    scaled = plain / (1 + math.pi / 8 * variance).sqrt()[:, None]
    torch.testing.assert_close(model.eval()(data.inputs), scaled.float(), atol=1e-5, rtol=0)


def test_norms_are_held_at_the_bound() -> None:
    torch.manual_seed(5)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 8), nn.Linear(8, 3))
    built = build_untrained(SNGP(features=16), network)
    assert isinstance(built, SNGPModel)
    with torch.no_grad():
        built.model[2].weight.mul_(50)  # type: ignore[index]
    small = built.model[0].weight.clone()  # type: ignore[index]
    for _ in range(60):
        built.bound_norms(2.0)
    norm = torch.linalg.matrix_norm(built.model[2].weight, 2)  # type: ignore[index]
    assert norm.item() == pytest.approx(2.0, rel=1e-3)
    assert torch.equal(built.model[0].weight, small)  # type: ignore[index]
    assert torch.linalg.matrix_norm(network[2].weight, 2) < 2  # the given model stays as it was


def test_the_last_layer_can_be_named() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))
    built = build_untrained(SNGP(features=8, layer="0"), network)
    assert isinstance(built, SNGPModel)
    assert isinstance(built.model[0], RandomFeatureHead)  # type: ignore[index]
    with pytest.raises(UserError, match=r"expected layer to be the name of an nn\.Linear"):
        build_untrained(SNGP(layer="nothing"), network)
