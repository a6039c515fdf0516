"""Things from outside as a study file names them: a dataset and a network."""

from torch import nn

from falconcal.data import Dataset
from tests.conftest import CLASSES, small_network, stripes


def load_stripes() -> Dataset:
    """Stripes to the left, in the middle or to the right."""
    train, validation, test = stripes(90), stripes(30, 1), stripes(30, 2)
    return Dataset("stripes", "image", CLASSES, train.bounds, train, validation, test)


def make_small(dataset: Dataset) -> nn.Module:
    """A network that learns the stripes in a few steps."""
    return small_network(len(dataset.classes))
