"""Images held as bytes, a quarter of what floats take, and turned into floats batch by batch."""

from dataclasses import dataclass, replace

import numpy
import torch
from torch import Tensor

from falconcal.data.conversion import as_tensor
from falconcal.data.examples import (
    Bounds,
    Examples,
    Held,
    check_labels,
    shape,
)
from falconcal.errors import UserError

PIXELS = Bounds(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Images(Held):
    """Images in memory or memory-mapped; what is given out are floats from 0 to 1.

    Channels lie last, as training wants them: gathering bytes so and making them floats takes a
    third of the time of gathering floats and laying them out.
    """

    pixels: Tensor  # (N, H, W, channels) uint8
    labels: Tensor  # (N,)
    classes: tuple[str, ...]
    bounds: Bounds = PIXELS
    tokens: None = None
    texts: None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", as_tensor(self.pixels, "pixels"))
        object.__setattr__(self, "labels", as_tensor(self.labels, "labels"))
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4 or not len(self.pixels):
            raise UserError(
                "expected at least one image, uint8 (N, height, width, channels), got "
                f"{self.pixels.dtype} {shape(self.pixels)}."
            )
        check_labels(self.labels, len(self.pixels), len(self.classes))
        object.__setattr__(self, "labels", self.labels.long())

    @property
    def inputs(self) -> Tensor:  # type: ignore[override]
        """All images as floats, (N, channels, H, W): four times the memory, so rather batches."""
        return as_floats(self.pixels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example."""
        height, width, channels = self.pixels.shape[1:]
        return channels, height, width

    def chosen(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels of some examples."""
        if isinstance(which, slice):
            return as_floats(self.pixels[which]), self.labels[which]
        return as_floats(self.pixels.index_select(0, which)), self.labels[which]

    def first(self, count: int) -> Examples:
        """Return the first examples as floats in memory."""
        return Examples(*self.chosen(slice(count)), self.bounds, self.classes)

    def part(self, which: slice) -> "Images":
        return replace(self, pixels=self.pixels[which], labels=self.labels[which])


def as_floats(pixels: Tensor) -> Tensor:
    """Return bytes as floats from 0 to 1: (N, H, W, channels) -> (N, channels, H, W)."""
    return pixels.permute(0, 3, 1, 2).float().div_(255)


def as_images(
    pixels: numpy.ndarray, labels: numpy.ndarray, classes: tuple[str, ...], source: object
) -> Images:
    """Return bytes (N, H, W) or (N, H, W, channels) as images; the source is for mistakes."""
    if len(pixels) != len(labels):
        raise UserError(
            f"{source}: expected a label an image, got {len(pixels)} images and {len(labels)} "
            "labels: do the files belong together?"
        )
    whole = pixels[..., None] if pixels.ndim == 3 else pixels
    try:
        return Images(torch.from_numpy(whole), torch.from_numpy(labels.astype("int64")), classes)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
