"""EfficientNet-Lite0: inverted residual blocks with ReLU6, 4.7 million weights, for ImageNet.

M. Tan and Q. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML
2019; Google's Lite variant (2020) has no squeeze-and-excitation and no swish. Published weights
were converted from TensorFlow, whose convolutions fill up to a multiple of the stride at the lower
right; the network wants bytes less 127, over 128, not ImageNet's mean and deviation.
"""

import re
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from falconcal.data.preparation import Preparation

STEM_WIDTH, HEAD_WIDTH = 32, 1280
# factor of expansion, width, blocks, stride of the first, side of the kernel
PLAN = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
)  # fmt: skip
NORM_EPSILON, NORM_MOMENTUM = 1e-3, 0.01
# names in the published file, and here
PUBLISHED_NAMES = (
    (r"^_conv_stem\.", "stem.convolution."), (r"^_bn0\.", "stem.norm."),
    (r"^_conv_head\.", "head.convolution."), (r"^_bn1\.", "head.norm."),
    (r"^_fc\.", "classifier."), (r"^_blocks\.", "blocks."),
    (r"\._expand_conv\.", ".expand.convolution."), (r"\._bn0\.", ".expand.norm."),
    (r"\._depthwise_conv\.", ".depthwise.convolution."), (r"\._bn1\.", ".depthwise.norm."),
    (r"\._project_conv\.", ".project.convolution."), (r"\._bn2\.", ".project.norm."),
)  # fmt: skip


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0: colour images (N, 3, H, W) in, logits out.

    Args:
        classes: The number of classes.
        dropout: The probability that a value before the last layer is dropped.
        trained_blocks: How many of the last blocks are trained, beside the head and the last
            layer; the others stay as they are, and so do the means of all batch norm. None trains
            everything.

    Example:
        >>> import torch
        >>> from falconcal.models import EfficientNetLite
        >>> EfficientNetLite(5)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 5])
    """

    preparation: ClassVar = Preparation(mean=(127 / 255,) * 3, deviation=(128 / 255,) * 3)

    def __init__(
        self, classes: int, dropout: float = 0.2, trained_blocks: int | None = None
    ) -> None:
        super().__init__()
        self.stem = Convolved(3, STEM_WIDTH, 3, 2)
        self.blocks = nn.Sequential(*_blocks())
        self.head = Convolved(PLAN[-1][1], HEAD_WIDTH, 1)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(HEAD_WIDTH, classes)
        self.keeps_means = trained_blocks is not None
        if trained_blocks is not None:
            kept = max(0, len(self.blocks) - trained_blocks)
            for part in (self.stem, self.blocks[:kept]):
                part.requires_grad_(False)

    def train(self, mode: bool = True) -> "EfficientNetLite":
        super().train(mode)
        for part in self.modules() if self.keeps_means else ():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, classes)
        features = self.head(self.blocks(self.stem(images))).mean((2, 3))  # (N, 1280)
        logits: Tensor = self.classifier(self.dropout(features))
        return logits

    def own_names(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return published weights by the names that the layers have here."""
        return {_own_name(name): weight for name, weight in weights.items()}


class InvertedResidual(nn.Module):
    """Expand, filter each channel by itself, project; the input is added where shapes agree."""

    def __init__(self, before: int, after: int, factor: int, stride: int, kernel: int) -> None:
        super().__init__()
        wide = factor * before
        self.expand = Convolved(before, wide, 1) if factor > 1 else nn.Identity()
        self.depthwise = Convolved(wide, wide, kernel, stride, groups=wide)
        self.project = Convolved(wide, after, 1, active=False)
        self.adds = stride == 1 and before == after

    def forward(self, images: Tensor) -> Tensor:
        changed: Tensor = self.project(self.depthwise(self.expand(images)))
        return images + changed if self.adds else changed


class Convolved(nn.Module):
    """A convolution, batch norm and ReLU6; the size is divided by the stride and rounded up."""

    def __init__(
        self,
        before: int,
        after: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
    ) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.convolution = nn.Conv2d(before, after, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(after, NORM_EPSILON, NORM_MOMENTUM)
        self.activation = nn.ReLU6() if active else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        sides = [
            (missing // 2, missing - missing // 2)
            for missing in map(self._missing, images.shape[:1:-1])  # width, then height
        ]
        filled = nn.functional.pad(images, [*sides[0], *sides[1]])
        out: Tensor = self.activation(self.norm(self.convolution(filled)))
        return out

    def _missing(self, size: int) -> int:
        """Return how many pixels are filled up in all, more of them at the end."""
        return max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)


def _blocks() -> list[InvertedResidual]:
    blocks, before = [], STEM_WIDTH
    for factor, width, count, stride, kernel in PLAN:
        for number in range(count):
            blocks.append(
                InvertedResidual(before, width, factor, stride if number == 0 else 1, kernel)
            )
            before = width
    return blocks


def _own_name(name: str) -> str:
    for published, own in PUBLISHED_NAMES:
        name = re.sub(published, own, name)
    return name
