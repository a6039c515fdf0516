"""Residual networks (He et al., CVPR 2016): ResNet50 as the paper takes it, and a small one.

Modules have torchvision's names, so that its published weights fit; as there, the stride of a
bottleneck is in its 3x3 convolution. Those weights expect images normalised by ImageNet's mean and
deviation, which the dataset states as its preparation.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

RESNET50 = (3, 4, 6, 3)
SMALL_BLOCKS = (1, 1, 1)


class ResNet(nn.Module):
    """A stem and stages of residual blocks, each after the first at half the image size.

    Args:
        classes: The number of classes.
        channels: Channels of an image.
        blocks: The number of blocks per stage; the default is ResNet50.
        width: The channels of the first stage; each later stage has twice as many.
        kind: The kind of block.
        stem: ``imagenet`` reduces the image to a quarter first, ``small`` keeps its size.

    Example:
        >>> import torch
        >>> from falconcal.models import ResNet
        >>> model = ResNet(10, blocks=(1, 1), width=16, kind="basic", stem="small")
        >>> model(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int = 1000,
        channels: int = 3,
        blocks: Sequence[int] = RESNET50,
        width: int = 64,
        kind: Literal["bottleneck", "basic"] = "bottleneck",
        stem: Literal["imagenet", "small"] = "imagenet",
    ) -> None:
        super().__init__()
        large = stem == "imagenet"
        size, stride = (7, 2) if large else (3, 1)
        self.conv1 = nn.Conv2d(channels, width, size, stride, size // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        inputs = width
        for stage, count in enumerate(blocks):
            layer = _stage(kind, inputs, width * 2**stage, count, stride=1 if stage == 0 else 2)
            self.add_module(f"layer{stage + 1}", layer)
            inputs = width * 2**stage * EXPANSION[kind]
        self.stages = len(blocks)
        self.fc = nn.Linear(inputs, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.apply(draw_he)

    def forward(self, images: Tensor) -> Tensor:  # (N, channels, H, W) -> (N, classes)
        features = torch.relu(self.bn1(self.conv1(images)))
        features = self.maxpool(features)
        for stage in range(self.stages):
            features = self.get_submodule(f"layer{stage + 1}")(features)
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm, and a shortcut past them."""

    def __init__(
        self, inputs: int, width: int, stride: int, shortcut: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _past(inputs, width, stride) if shortcut is None else shortcut

    def forward(self, images: Tensor) -> Tensor:  # (N, inputs, H, W) -> (N, width, H', W')
        features = torch.relu(self.bn1(self.conv1(images)))
        features = self.bn2(self.conv2(features))
        return torch.relu(features + self.downsample(images))


class Bottleneck(nn.Module):
    """Three convolutions, the outer ones 1x1, and a shortcut past them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION["bottleneck"] * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _past(inputs, outputs, stride)

    def forward(self, images: Tensor) -> Tensor:  # (N, inputs, H, W) -> (N, 4 width, H', W')
        features = torch.relu(self.bn1(self.conv1(images)))
        features = torch.relu(self.bn2(self.conv2(features)))
        features = self.bn3(self.conv3(features))
        return torch.relu(features + self.downsample(images))


EXPANSION = {"basic": 1, "bottleneck": 4}  # channels that leave a block, in widths
BLOCKS: dict[str, type[ResidualBlock] | type[Bottleneck]] = {
    "basic": ResidualBlock,
    "bottleneck": Bottleneck,
}


def _stage(kind: str, inputs: int, width: int, count: int, stride: int) -> nn.Sequential:
    block, outputs = BLOCKS[kind], width * EXPANSION[kind]
    later = (block(outputs, width, 1) for _ in range(count - 1))
    return nn.Sequential(block(inputs, width, stride), *later)


def _past(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return the shortcut past a block: nothing, or a 1x1 convolution where the size changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


def draw_he(layer: nn.Module) -> None:
    """Draw first weights as He et al. (ICCV 2015) do."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
