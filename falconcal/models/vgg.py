"""VGG with batch norm (Simonyan & Zisserman, ICLR 2015): the paper's network for CIFAR-10.

As its authors built it: ReLU, then batch norm, after each convolution; two dense layers of 1024.
"""

from collections.abc import Sequence

from torch import Tensor, nn

POOL = 0
VGG19 = (
    64, 64, POOL, 128, 128, POOL, 256, 256, 256, 256, POOL,
    512, 512, 512, 512, POOL, 512, 512, 512, 512, POOL,
)  # fmt: skip
SMALL_PLAN = (32, 32, POOL, 64, 64, POOL, 128, 128, POOL)


class VGG(nn.Module):
    """Convolutions by a plan of widths and pools, then dense layers.

    Args:
        classes: The number of classes.
        channels: Channels of an image.
        size: Height and width of an image.
        plan: The width of each convolution; 0 is a pool that halves the image.
        dense: The widths of the dense layers before the last one.
        dropout: The probability that a value is dropped after a dense layer.

    Example:
        >>> import torch
        >>> from falconcal.models import VGG
        >>> VGG(size=8, plan=(16, 0, 32, 0), dense=())(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        size: int = 32,
        plan: Sequence[int] = VGG19,
        dense: Sequence[int] = (1024, 1024),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in plan:
            if width == POOL:
                # ceil_mode leaves a pixel of images that are too small for five pools
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
                size = -(-size // 2)
            else:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                layers.append(nn.BatchNorm2d(width))
                channels = width
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.classifier = _dense(channels * size * size, dense, classes, dropout)

    def forward(self, images: Tensor) -> Tensor:  # (N, channels, size, size) -> (N, classes)
        logits: Tensor = self.classifier(self.features(images))
        return logits


def _dense(inputs: int, widths: Sequence[int], classes: int, dropout: float) -> nn.Sequential:
    # without dense layers there is one dropout all the same, for methods that need it
    layers: list[nn.Module] = [] if widths else [nn.Dropout(dropout)]
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))
