"""Tiny data that a network can learn, and the authors' outputs."""

import numpy
import torch
from torch import nn

from falconcal.data import Bounds, Dataset, Examples
from falconcal.data.dataset import Modality
from tests.helpers.paths import FIXTURES

CLASSES = ("left", "middle", "right")


def reference(name: str) -> dict[str, numpy.ndarray]:
    """Return the outputs of the authors' code of one kind."""
    with numpy.load(FIXTURES / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def stripes(count: int, seed: int = 0) -> Examples:
    """Return 28x28 images with a bright stripe to the left, in the middle or to the right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = torch.rand(count, 1, 28, 28, generator=generator) * 0.3
    for index, label in enumerate(labels.tolist()):
        images[index, :, :, 4 + 8 * label : 8 + 8 * label] += 0.6
    return Examples(images, labels, Bounds(0.0, 1.0), CLASSES)


def mislabelled(count: int, seed: int = 0) -> Examples:
    """Return stripes of which one in five is labelled wrong, so that a temperature is settled."""
    data = stripes(count, seed)
    wrong = torch.where(torch.arange(count) % 5 == 0, (data.labels + 1) % 3, data.labels)
    return Examples(data.inputs, wrong, data.bounds, data.classes)


def small_network(outputs: int = 3, seed: int = 0) -> nn.Sequential:
    """Return a network that learns the stripes in a few steps."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(49, 16),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(16, outputs),
    )


def data_for(name: str) -> Dataset:
    """Return a few examples of the kind that a network takes."""
    generator = torch.Generator().manual_seed(0)
    modality: Modality = "image"
    colour = "resnet" in name or "efficientnet" in name
    inputs = torch.rand(6, 3 if colour else 1, 28, 28, generator=generator)
    if name.startswith("text"):
        modality, inputs = "text", torch.randint(50, (6, 12), generator=generator)
        inputs[0, 0] = 49
    if name.startswith("signal"):
        modality, inputs = "signal", torch.randn(6, 64, 3, generator=generator)
    bounds = Bounds(0.0, 1.0) if modality == "image" else None
    part = Examples(inputs, torch.arange(6) % 4, bounds, tuple("abcd"))
    vectors = torch.randn(50, 100, generator=generator) if modality == "text" else None
    return Dataset("few", modality, tuple("abcd"), bounds, part, part, part, vectors=vectors)
