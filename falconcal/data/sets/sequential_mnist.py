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

SIDE = 28


@settings
class SequentialMnist:
    """How many rows and columns are read, and where MNIST lies."""

    side: Annotated[int, Field(ge=1, le=SIDE)] = SIDE
    path: str | None = None

    def load(self) -> Dataset:
        preparation = Preparation(side=self.side) if self.side < SIDE else None
        mnist = Mnist(path=self.path).load()
        return replace(mnist, name="sequential_mnist", modality="sequence", preparation=preparation)

    def load_test(self) -> Part:
        return Mnist(path=self.path).load_test()
