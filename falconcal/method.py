"""What a method is: a frozen dataclass of settings with one verb."""

from typing import Protocol

from torch import nn

from falconcal.data import Batches


class Method(Protocol):
    """``fit`` returns a module, inputs in and logits out, whatever the method."""

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module: ...
