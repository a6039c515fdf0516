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
    Part,
    check_labels,
    shape,
)
from falconcal.errors import UserError
from falconcal.io.image_files import Framing, framing_of_shape

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
    framing: Framing | None = None  # how picture files became these images, if they did

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
        held = self.chosen(slice(count))
        return Examples(*held, self.bounds, self.classes, framing=self.framing)

    def part(self, which: slice) -> "Images":
        return replace(self, pixels=self.pixels[which], labels=self.labels[which])


def as_floats(pixels: Tensor) -> Tensor:
    """Return bytes as floats from 0 to 1: (N, H, W, channels) -> (N, channels, H, W)."""
    return pixels.permute(0, 3, 1, 2).float().div_(255)


def in_range(pixels: Tensor, bounds: Bounds | None) -> Tensor:
    """Return bytes as floats in the range of data: (N, H, W, channels) -> (N, channels, H, W)."""
    images = as_floats(pixels)
    return images if bounds is None else bounds.low + bounds.range * images


def framing_of(part: Part) -> Framing:
    """Return how picture files become inputs like those of a part: as its own did, if they did."""
    own: Framing | None = getattr(part, "framing", None)  # a part from outside need not have it
    return own or framing_of_shape(part.shape)


def as_images(
    pixels: numpy.ndarray,
    labels: numpy.ndarray,
    classes: tuple[str, ...],
    source: object,
    framing: Framing | None = None,
) -> Images:
    """Return bytes (N, H, W) or (N, H, W, channels) as images; the source is for mistakes."""
    if len(pixels) != len(labels):
        raise UserError(
            f"{source}: expected a label an image, got {len(pixels)} images and {len(labels)} "
            "labels: do the files belong together?"
        )
    whole = pixels[..., None] if pixels.ndim == 3 else pixels
    try:
        numbers = torch.from_numpy(labels.astype("int64"))
        return Images(torch.from_numpy(whole), numbers, classes, framing=framing)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
