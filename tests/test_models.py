"""Every network of the table under one contract."""

import pytest
import torch
from torch import nn

from falconcal.data import Dataset, load_dataset
from falconcal.models import MODELS, VGG, LeNet, PixelRecurrent, TokenTransformer, make_model


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


def test_vgg19_has_the_papers_size() -> None:
    assert sum(weight.numel() for weight in VGG().parameters()) == 21_624_650


def test_vgg_takes_images_that_five_pools_would_use_up() -> None:
    assert VGG(classes=4, channels=1, size=28)(torch.rand(2, 1, 28, 28)).shape == (2, 4)


def test_recurrent_dropout_really_drops() -> None:
    model = PixelRecurrent(dropout=0.5).train()
    images = torch.rand(2, 1, 5, 5)
    assert not torch.equal(model(images), model(images))
    assert torch.equal(model.eval()(images), model(images))


def test_a_recurrent_network_reads_pixels_row_by_row() -> None:
    """Its output is that of the layer given the pixels as a list."""
    model, image = PixelRecurrent(hidden=6), torch.rand(1, 1, 3, 4)
    pixels = torch.tensor([[pixel] for row in image[0, 0].tolist() for pixel in row])
    _, (last, _) = model.layer(pixels[None])
    torch.testing.assert_close(model(image), model.classifier(last[0]))


def test_the_transformer_knows_the_order_of_words() -> None:
    model = TokenTransformer(3, vocabulary=9, length=5).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 0]])
    assert model(tokens).shape == (1, 3)
    assert not torch.allclose(model(tokens), model(tokens.flip(1)))
    torch.testing.assert_close(model.classify(model.embed(tokens)), model(tokens))
