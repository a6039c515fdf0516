"""Networks: plain modules, logits out. One file each, and the table of them.

Adding one: write ``models/NAME.py`` and add a line to ``MODELS`` with how to size it to a dataset.
"""

from collections.abc import Callable

import torch
from torch import nn

from falconcal.data import Dataset
from falconcal.data.examples import shape
from falconcal.errors import UserError
from falconcal.models.lenet import LeNet
from falconcal.registry import look_up

__all__ = ["MODELS", "LeNet", "make_model"]


def _lenet(dataset: Dataset) -> nn.Module:
    """Two convolutions and three dense layers, the paper's network for MNIST."""
    if dataset.train.inputs.ndim != 4:
        raise UserError(f"lenet needs images, got inputs of {shape(dataset.train.inputs)}.")
    channels, size = dataset.train.inputs.shape[1:3]
    return LeNet(len(dataset.classes), channels, size)


MODELS: dict[str, Callable[[Dataset], nn.Module]] = {
    "lenet": _lenet,
}


def make_model(name: str, dataset: Dataset, seed: int = 0) -> nn.Module:
    """Return a fresh network of the table, sized to the dataset, its first weights by the seed."""
    make = look_up("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(dataset)
