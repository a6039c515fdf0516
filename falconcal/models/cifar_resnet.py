"""ResNets for images of 32 x 32 (He et al., CVPR 2016, section 4.2), of depth 6n + 2.

Shortcuts have no weights: where the size changes, every second pixel is taken and the new channels
are zeros (the paper's option A). Modules have the names of a widely used set of published weights
(Y. Idelbayev, ``akamaster/pytorch_resnet_cifar10``), which fit as they are. Those expect pixels
normalised by ImageNet's mean and deviation; the network takes pixels from 0 to 1 and normalises.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.models.resnet import ResidualBlock, draw_he

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels
WIDTHS = (16, 32, 64)


class CifarResNet(nn.Module):
    """A convolution and three stages of residual blocks; pixels from 0 to 1 in, logits out.

    Args:
        classes: The number of classes.
        depth: The number of layers with weights: 20, 32, 44, 56 and so on.

    Example:
        >>> import torch
        >>> from falconcal.models import CifarResNet
        >>> model = CifarResNet(10, depth=20)
        >>> model(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, classes: int = 10, depth: int = 20) -> None:
        super().__init__()
        assert depth % 6 == 2, "a depth of 6n + 2"
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], depth // 6)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], depth // 6)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], depth // 6)
        self.linear = nn.Linear(WIDTHS[2], classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.apply(draw_he)

    def forward(self, images: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, classes)
        features = torch.relu(self.bn1(self.conv1((images - self.mean) / self.deviation)))
        features = self.layer3(self.layer2(self.layer1(features)))
        logits: Tensor = self.linear(features.mean((2, 3)))
        return logits


class PaddedShortcut(nn.Module):
    """Every second pixel, with channels of zeros on both sides of the old ones."""

    def __init__(self, added: int) -> None:
        super().__init__()
        self.each = added // 2

    def forward(self, images: Tensor) -> Tensor:  # (N, C, H, W) -> (N, C + added, H / 2, W / 2)
        return functional.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, self.each, self.each))


def _stage(inputs: int, width: int, count: int) -> nn.Sequential:
    changes = inputs != width
    past = PaddedShortcut(width - inputs) if changes else nn.Identity()
    first = ResidualBlock(inputs, width, 2 if changes else 1, past)
    return nn.Sequential(first, *(ResidualBlock(width, width, 1) for _ in range(count - 1)))
