"""Networks: plain modules, logits out. One file each, and the table of them.

Adding one: write ``models/NAME.py`` and add a line to ``MODELS`` with how to size it to a dataset.
"""

from collections.abc import Callable

from torch import nn

from falconcal.data import Dataset
from falconcal.errors import unknown
from falconcal.models.lenet import LeNet

__all__ = ["MODELS", "LeNet", "make_model"]


def _lenet(dataset: Dataset) -> nn.Module:
    channels, size = dataset.train.inputs.shape[1:3]
    return LeNet(len(dataset.classes), channels, size)


MODELS: dict[str, Callable[[Dataset], nn.Module]] = {
    "lenet": _lenet,
}


def make_model(name: str, dataset: Dataset) -> nn.Module:
    """Return a fresh network of the table, sized to the dataset."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name](dataset)
