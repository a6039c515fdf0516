"""A multilayer perceptron, for tables: dense layers with ReLU between them."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """Dense layers with ReLU and dropout, and one more that gives the logits.

    Args:
        classes: The number of classes.
        inputs: Numbers per example.
        hidden: The widths of the layers.
        dropout: The probability that a value is dropped.

    Example:
        >>> import torch
        >>> from falconcal.models import MLP
        >>> MLP(3, 8)(torch.zeros(2, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, classes: int, inputs: int, hidden: Sequence[int] = (64, 64), dropout: float = 0.0
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        widths = [inputs, *hidden]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], classes))

    def forward(self, inputs: Tensor) -> Tensor:  # (N, ...) -> (N, classes)
        logits: Tensor = self.layers(inputs)
        return logits
