"""Networks: plain modules, logits out. One file each, and the table of them.

Adding one: write ``models/NAME.py`` and add a line to ``MODELS`` with how to size it to a dataset.
"""

import math
from collections.abc import Callable

import torch
from torch import nn

from falconcal.data import Dataset
from falconcal.errors import UserError
from falconcal.models.lenet import LeNet
from falconcal.models.mlp import MLP
from falconcal.models.recurrent import Kind, PixelRecurrent
from falconcal.models.transformer import TokenTransformer
from falconcal.models.vgg import SMALL, VGG
from falconcal.registry import look_up

__all__ = ["MLP", "MODELS", "VGG", "LeNet", "PixelRecurrent", "TokenTransformer", "make_model"]


def _lenet(dataset: Dataset) -> nn.Module:
    """Two convolutions and three dense layers, the paper's network for MNIST."""
    return LeNet(len(dataset.classes), *_image(dataset, "lenet"))


def _vgg19(dataset: Dataset) -> nn.Module:
    """Sixteen convolutions with batch norm and three dense layers, the paper's for CIFAR-10."""
    return VGG(len(dataset.classes), *_image(dataset, "vgg19"))


def _vgg_small(dataset: Dataset) -> nn.Module:
    """Six convolutions with batch norm and one dense layer, for CPUs."""
    classes, (channels, size) = len(dataset.classes), _image(dataset, "vgg_small")
    return VGG(classes, channels, size, SMALL, dense=())


def _lstm(dataset: Dataset) -> nn.Module:
    """LSTM of 130 over the pixels of an image, one by one."""
    return _recurrent(dataset, "lstm", 130)


def _gru(dataset: Dataset) -> nn.Module:
    """GRU of 250 over the pixels of an image, one by one."""
    return _recurrent(dataset, "gru", 250)


def _recurrent(dataset: Dataset, kind: Kind, hidden: int) -> nn.Module:
    channels, _ = _image(dataset, kind)
    return PixelRecurrent(len(dataset.classes), channels, kind, hidden)


def _image(dataset: Dataset, name: str) -> tuple[int, int]:
    """Return the channels and the height of a dataset's images."""
    shape = dataset.train.shape
    if len(shape) != 3:
        raise UserError(f"{name} needs images, got examples of shape {shape}.")
    return shape[0], shape[1]


def _mlp(dataset: Dataset) -> nn.Module:
    """Dense layers with ReLU, for tables; of an image it sees the pixels in a row."""
    return MLP(len(dataset.classes), math.prod(dataset.train.shape))


MODELS: dict[str, Callable[[Dataset], nn.Module]] = {
    "lenet": _lenet,
    "vgg19": _vgg19,
    "vgg_small": _vgg_small,
    "lstm": _lstm,
    "gru": _gru,
    "mlp": _mlp,
}


def make_model(name: str, dataset: Dataset, seed: int = 0) -> nn.Module:
    """Return a fresh network of the table, sized to the dataset, its first weights by the seed."""
    make = look_up("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(dataset)
