"""Images lie in memory with channels last where the model takes them so, and else as usual."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import falconcal
from falconcal.core.layout import (
    has_channels_last,
    prefer_channels_last,
    to_channels_last,
    to_model_device,
)

BOUNDS = falconcal.Bounds(0, 1)
pytestmark = pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning")


class Tutorial(nn.Module):
    """Two convolutions and a dense layer, flattened as many tutorials do, or as works always."""

    def __init__(self, flatten: str, channels: int = 1) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 4, 3), nn.Conv2d(4, 6, 3)
        self.dense, self.flatten = nn.Linear(6 * 16, 3), flatten

    def forward(self, images: Tensor) -> Tensor:  # (N, C, 8, 8) -> (N, 3)
        maps = self.second(self.first(images).relu()).relu()
        flat: Tensor = getattr(maps, self.flatten)(-1, 6 * 16)
        logits: Tensor = self.dense(flat)
        return logits


def network(flatten: str, channels: int = 1) -> Tutorial:
    torch.manual_seed(3)
    return Tutorial(flatten, channels)


def batches(channels: int = 1) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(4)
    return [(torch.rand(12, channels, 8, 8), torch.arange(12) % 3) for _ in range(3)]


def by_fit(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> nn.Module:
    return falconcal.Falcon(epochs=2, bounds=BOUNDS).fit(model, data, data)


def by_steps(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> nn.Module:
    falcon = falconcal.Falcon(epochs=2, bounds=BOUNDS)
    step = falconcal.FalconStep(model, torch.optim.Adam(model.parameters()), falcon)
    for _ in step.epochs():
        for images, labels in data:
            step(images, labels)
    return model.eval()


def by_lightning(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> nn.Module:
    lightning = pytest.importorskip("lightning")
    from falconcal.integrations.lightning import FalconModule

    settings: dict[str, Any] = {"accelerator": "cpu", "logger": False, "barebones": True}
    trainer = lightning.Trainer(max_epochs=2, **settings)
    trainer.fit(FalconModule(model, falconcal.Falcon(epochs=2, bounds=BOUNDS)), data)
    return model.eval()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("train", [by_fit, by_steps, by_lightning])
def test_a_network_that_views_its_maps_trains_as_one_that_reshapes_them(
    train: Callable[..., nn.Module], channels: int
) -> None:
    data = batches(channels)
    viewed, reshaped = (train(network(flatten, channels), data) for flatten in ("view", "reshape"))
    assert not has_channels_last(viewed)
    assert has_channels_last(reshaped)
    for one, other in zip(viewed.parameters(), reshaped.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_that_views_its_maps_predicts_and_is_calibrated(channels: int) -> None:
    data, model = batches(channels), network("view", channels).eval()
    predicted = falconcal.predict(model, data).probs[:12]
    expected = model(data[0][0]).detach().double().softmax(1)
    torch.testing.assert_close(predicted, expected, check_dtype=False, atol=1e-6, rtol=1e-5)
    falconcal.OneCurveIsotonic().fit(model, data, data)


def test_steps_go_on_from_a_stored_optimiser() -> None:
    """What the optimiser holds follows the weights back to the usual layout."""
    data, falcon = batches(3), falconcal.Falcon(epochs=2, bounds=BOUNDS)
    whole, model = by_steps(network("view", 3), data), network("view", 3)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    step = falconcal.FalconStep(model, optimizer, falcon)
    for images, labels in data:
        step(images, labels)
    stored = (model.state_dict(), optimizer.state_dict(), step.state_dict())
    again = network("view", 3)
    optimizer = torch.optim.Adam(again.parameters(), fused=True)
    step = falconcal.FalconStep(again, optimizer, falcon)
    again.load_state_dict(stored[0])
    optimizer.load_state_dict(stored[1])
    step.load_state_dict(stored[2])
    for _ in step.epochs():
        for images, labels in data:
            step(images, labels)
    for one, other in zip(again.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_trying_a_model_leaves_it_and_the_random_numbers_as_they_were() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten())
    model.train()
    before, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    prefer_channels_last(model, torch.rand(4, 3, 8, 8, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(part.training for part in model.modules())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_grey_images_follow_the_weights() -> None:
    images, model = torch.rand(2, 1, 8, 8), network("reshape")
    assert to_model_device(model, images).stride() == images.stride()
    prefer_channels_last(model, images)
    assert to_model_device(model, images).stride() == (64, 1, 8, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_laid_out_with_channels_last_also_when_there_is_one(channels: int) -> None:
    images = torch.rand(2, channels, 4, 5)[1:]
    for given in (images, images.transpose(2, 3)):
        laid = to_channels_last(given)
        assert torch.equal(laid, given)
        rows, columns = given.shape[2:]
        assert laid.stride() == (rows * columns * channels, 1, columns * channels, channels)
        seen = nn.functional.conv2d(laid, torch.rand(2, channels, 3, 3))
        assert seen.is_contiguous(memory_format=torch.channels_last)  # so the next layers have it
