"""Things from outside as a study file names them: a dataset and a network."""

from torch import nn

from falconcal.data import Dataset, Examples
from falconcal.shifts import Shift
from tests.conftest import CLASSES, small_network, stripes


def load_stripes() -> Dataset:
    """Stripes to the left, in the middle or to the right."""
    train, validation, test = stripes(90), stripes(30, 1), stripes(30, 2)
    return Dataset("stripes", "image", CLASSES, train.bounds, train, validation, test)


def make_small(dataset: Dataset) -> nn.Module:
    """A network that learns the stripes in a few steps."""
    return small_network(len(dataset.classes))


def load_table() -> Dataset:
    """The stripes as rows of numbers, no images any more."""
    images = load_stripes()
    train, validation, test = (
        Examples(part.inputs.flatten(1), part.labels, part.bounds, part.classes)
        for part in (images.train, images.validation, images.test)
    )
    return Dataset("table", "signal", CLASSES, train.bounds, train, validation, test)


inverted = Shift("invert", (0.0, 1.0), lambda inputs, strength, _: strength - inputs)
