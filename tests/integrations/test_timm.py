"""Any model of timm, with its own data config; these tests need timm: make test-timm."""

import pytest
import torch
from torch import Tensor, nn

import falconcal
from falconcal.data import ChannelBounds, Loader, Preparation
from falconcal.recalibration import ShiftTemperature
from tests.helpers.torchvision_operators import timm_or_skip

timm = timm_or_skip()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::falconcal.errors.CalibrationWarning"),
]
CLASSES, COUNT = 3, 24
NAMES = ["test_resnet", "test_vit", "test_efficientnet"]


class Case:
    """A model, its images as its own transform makes them, and their range."""

    def __init__(self, name: str) -> None:
        from PIL import Image

        torch.manual_seed(0)
        self.model: nn.Module = timm.create_model(name, num_classes=CLASSES)
        config = timm.data.resolve_model_data_config(self.model)
        transform = timm.data.create_transform(**config)
        self.mean, self.deviation = config["mean"], config["std"]
        drawn = torch.randint(0, 256, (COUNT, 40, 40, 3), dtype=torch.uint8)
        self.images = torch.stack([transform(Image.fromarray(one.numpy())) for one in drawn])
        self.labels = torch.arange(COUNT) % CLASSES
        self.bounds = ChannelBounds.normalised(self.mean, self.deviation)
        self.loader = Loader([(self.images, self.labels)], bounds=self.bounds)


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_falcon_keeps_its_perturbed_images_within_the_pixels(case: Case) -> None:
    """By hand: what a pixel of 0 and one of 1 become, per channel."""
    seen: list[Tensor] = []
    case.model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    method = falconcal.Falcon(epochs=1, bounds=case.bounds, epsilons=(0.4,))
    method.fit(case.model, case.loader, case.loader)
    mean, deviation = (torch.tensor(one)[:, None, None] for one in (case.mean, case.deviation))
    pixels = [(images * deviation + mean) for images in seen]
    assert all(one.min() > -1e-5 and one.max() < 1 + 1e-5 for one in pixels)
    whole = [one for one in pixels if len(one) == COUNT]  # two examples try the layout in memory
    moved = max(float((one - whole[0]).abs().max()) for one in whole)
    assert moved == pytest.approx(0.4, abs=1e-4)


def test_shifts_act_on_the_pixels(case: Case) -> None:
    """By hand: pixels under contrast, normalised again, through the model."""
    model, shift = case.model.eval(), falconcal.SHIFTS["contrast"]
    preparation = Preparation(mean=case.mean, deviation=case.deviation)
    rows = falconcal.evaluate(model, (case.images, case.labels), [shift], preparation=preparation)
    mean, deviation = (torch.tensor(one)[:, None, None] for one in (case.mean, case.deviation))
    pixels = (case.images * deviation + mean).clamp(0, 1)
    for level in (0, 3):
        images = (shift.at(pixels, level) - mean) / deviation
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(images), case.labels)
        found = rows.filter(shift="contrast", level=level, metric="nll")["value"].item()
        assert found == pytest.approx(float(loss), rel=1e-4)


def test_shift_temperature_keeps_the_classes(case: Case) -> None:
    method = ShiftTemperature(perturbed={"contrast": "spread"}, check_families=False)
    trusted = method.fit(case.model, case.loader, case.loader)
    with torch.no_grad():
        before, after = case.model(case.images), trusted(case.images)
    assert torch.equal(before.argmax(1), after.argmax(1))
    torch.testing.assert_close(after.exp().sum(1), torch.ones(COUNT).double())
