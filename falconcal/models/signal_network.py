"""A small convolutional network over time, for signals of several channels."""

from collections.abc import Sequence

from torch import Tensor, nn


class SignalNetwork(nn.Module):
    """Convolutions over time with batch norm, each at a quarter of the rate of the one before.

    The features are averaged over time, so signals may have any length that the strides leave.

    Args:
        classes: The number of classes.
        channels: Channels of a signal.
        widths: The channels after each convolution.
        size: The length of the convolutions' kernels.
        dropout: The probability that a feature is dropped.

    Example:
        >>> import torch
        >>> from falconcal.models import SignalNetwork
        >>> SignalNetwork(4, 3)(torch.zeros(2, 100, 3)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        classes: int,
        channels: int,
        widths: Sequence[int] = (16, 32, 64),
        size: int = 15,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in widths:
            layers += [nn.Conv1d(channels, width, size, stride=2, padding=size // 2)]
            layers += [nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2, ceil_mode=True)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(channels, classes))

    def forward(self, signals: Tensor) -> Tensor:  # (N, time, channels) -> (N, classes)
        features = self.features(signals.transpose(1, 2)).mean(2)  # (N, last width)
        logits: Tensor = self.classifier(features)
        return logits
