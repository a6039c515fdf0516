"""LeNet as in the paper's MNIST experiments: 369,174 parameters on 28x28 grey images."""

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two convolutions, three dense layers, dropout after the first two dense ones.

    Args:
        classes: The number of classes.
        channels: Channels of an image.
        size: Height and width of an image.
        dropout: The probability that a value is dropped.

    Example:
        >>> import torch
        >>> from falconcal.models import LeNet
        >>> LeNet()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, classes: int = 10, channels: int = 1, size: int = 28, dropout: float = 0.5
    ) -> None:
        super().__init__()
        side = (size // 2 - 4) // 2  # pool, valid 5x5, pool
        self.features = nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding="same"),
            nn.MaxPool2d(2),
            nn.ReLU(),  # after the pool it is the same, with a quarter of the work
            nn.Conv2d(32, 48, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(48 * side * side, 256),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(256, 84),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(84, classes),
        )

    def forward(self, images: Tensor) -> Tensor:  # (N, channels, size, size) -> (N, classes)
        logits: Tensor = self.classifier(self.features(images))
        return logits
