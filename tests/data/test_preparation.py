"""Images that the network averages down and normalises itself: the data stays in pixels."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from falconcal.data import Dataset, Preparation, load_dataset
from falconcal.errors import UsageError
from falconcal.inference.model_file import load, save
from falconcal.models import make_model
from falconcal.models.prepared_model import PreparedModel
from falconcal.shifts.fgsm import fgsm
from tests.helpers.official_layouts import write_mnist


def test_images_are_averaged_then_normalised() -> None:
    images = torch.rand(2, 3, 8, 8)
    preparation = Preparation(side=4, mean=(0.1, 0.2, 0.3), deviation=(1.0, 2.0, 4.0))
    seen = PreparedModel(nn.Identity(), preparation)(images)
    expected = images.reshape(2, 3, 4, 2, 4, 2).mean((3, 5))
    for channel, (mean, deviation) in enumerate([(0.1, 1), (0.2, 2), (0.3, 4)]):
        torch.testing.assert_close(seen[:, channel], (expected[:, channel] - mean) / deviation)
    assert not PreparedModel(nn.Identity(), preparation).state_dict()


def test_a_network_sees_prepared_images_and_fgsm_moves_pixels(tiny: Dataset) -> None:
    asked = replace(tiny, preparation=Preparation(side=14, mean=(0.5,), deviation=(0.1,)))
    model = make_model("lenet", asked)
    few = tiny.test.first(4)
    assert model(few.inputs).shape == (4, 3)
    moved = fgsm(model, few.inputs, few.labels, 0.1, few.bounds) - few.inputs
    torch.testing.assert_close(moved.abs().max(), torch.tensor(0.1))  # not 0.1 deviations


def test_a_saved_model_keeps_its_preparation(tiny: Dataset, tmp_path: Path) -> None:
    preparation = Preparation(side=7, mean=(0.5,), deviation=(0.25,))
    asked = replace(tiny, preparation=preparation)
    model, file = make_model("mlp", asked).eval(), tmp_path / "model.safetensors"
    shape = tiny.train.shape
    save(model, file, "mlp", classes=tiny.classes, shape=shape, preparation=preparation)
    loaded = load(file)
    assert loaded.metadata.preparation == preparation
    inputs = tiny.test.first(3).inputs
    torch.testing.assert_close(loaded.model(inputs), model(inputs), rtol=0, atol=0)


def test_a_saved_model_of_half_precision_keeps_its_preparation(
    tiny: Dataset, tmp_path: Path
) -> None:
    preparation = Preparation(side=7, mean=(0.5,), deviation=(0.25,))
    model, file = make_model("mlp", replace(tiny, preparation=preparation)).eval(), tmp_path / "m"
    shape = tiny.train.shape
    save(model.half(), file, "mlp", classes=tiny.classes, shape=shape, preparation=preparation)
    found = load(file).model(tiny.test.first(3).inputs.half())
    assert found.dtype == torch.float16


def test_sequences_are_images_that_the_network_shortens(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    whole = load_dataset("sequential_mnist", path=str(tmp_path))
    short = load_dataset("sequential_mnist", path=str(tmp_path), side=14)
    assert (whole.seen_shape, short.seen_shape) == ((1, 28, 28), (1, 14, 14))
    assert whole.train.shape == short.train.shape == (1, 28, 28)
    steps = []
    model = make_model("gru", short)
    model.network.layer.register_forward_hook(  # type: ignore[union-attr]
        lambda _, given, __: steps.append(given[0].shape)
    )
    model(short.test.first(2).inputs)
    assert steps == [(2, 196, 1)]
    with pytest.raises(UsageError, match="side"):
        load_dataset("sequential_mnist", side=29)


def test_preparations_that_cannot_be_are_refused() -> None:
    for mean, deviation in (((0.5,), None), ((0.5,), (0.0,)), ((0.5,), (1.0, 1.0))):
        with pytest.raises(UsageError, match="mean and deviation"):
            Preparation(mean=mean, deviation=deviation)
