"""MNIST pixel by pixel, 784 steps or fewer: a network reads the image as a sequence.

The data are MNIST's images, so that shifts act on them before they become sequences. With ``side``
below 28 the network averages the shifted image down to that many rows and columns first.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from falconcal.core.settings import settings
from falconcal.data.dataset import Dataset
from falconcal.data.part import Part
from falconcal.data.preparation import Preparation
from falconcal.data.sets.mnist import Mnist

MNIST_SIDE = 28


@settings
class SequentialMnist:
    """Sequential MNIST, with settings."""

    side: Annotated[int, Field(ge=1, le=MNIST_SIDE)] = MNIST_SIDE
    """Rows and columns that the network reads; below 28 it averages the image down first."""

    path: str | None = None
    """The folder of MNIST's four files; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        preparation = Preparation(side=self.side) if self.side < MNIST_SIDE else None
        mnist = Mnist(path=self.path).load()
        return replace(mnist, name="sequential_mnist", modality="sequence", preparation=preparation)

    def load_test(self) -> Part:
        return Mnist(path=self.path).load_test()
