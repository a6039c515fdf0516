"""Images held as bytes, a quarter of what floats take, and turned into floats batch by batch."""

from dataclasses import dataclass, replace

import numpy
import torch
from torch import Tensor

from falconcal.core.array_conversion import as_tensor
from falconcal.core.batch import shape_of
from falconcal.data.bounds import Bounds
from falconcal.data.input_checks import check_labels
from falconcal.data.part import Examples, InMemoryPart, Part, warn_of_class_order
from falconcal.errors import UserError
from falconcal.io.image_files import Framing, framing_of_shape

PIXEL_BOUNDS = Bounds(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Images(InMemoryPart):
    """Images held as bytes, in memory or memory-mapped; batches are floats from 0 to 1.

    Channels are last in memory: gathering bytes in that order and making them floats takes a third
    of the time of gathering floats and changing their order.

    Args:
        pixels: Bytes (N, height, width, channels), uint8.
        labels: Whole numbers (N,) from 0 to C - 1, or -1 for an example of no known class.
        classes: The names of the C classes.
        bounds: The range of the inputs.
        tokens: None: images are not tokens.
        texts: None.
        framing: How image files became these images, if they did.

    Raises:
        UserError: The pixels are not bytes of four axes, or labels do not fit.

    Example:
        >>> import torch
        >>> from falconcal.data import Images
        >>> pixels = torch.full((2, 4, 4, 3), 255, dtype=torch.uint8)
        >>> images = Images(pixels, torch.tensor([0, 1]), ("cat", "dog"))
        >>> images.inputs.shape, float(images.inputs.max())
        (torch.Size([2, 3, 4, 4]), 1.0)
    """

    pixels: Tensor  # (N, H, W, channels) uint8
    labels: Tensor  # (N,)
    classes: tuple[str, ...]
    bounds: Bounds = PIXEL_BOUNDS
    tokens: None = None
    texts: None = None
    framing: Framing | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", as_tensor(self.pixels, "pixels"))
        object.__setattr__(self, "labels", as_tensor(self.labels, "labels"))
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4 or not len(self.pixels):
            raise UserError(
                "expected at least one image, uint8 (N, height, width, channels), got "
                f"{self.pixels.dtype} {shape_of(self.pixels)}."
            )
        check_labels(self.labels, len(self.pixels), len(self.classes))
        object.__setattr__(self, "labels", self.labels.long())

    @property
    def inputs(self) -> Tensor:
        """All images as floats, (N, channels, H, W), which take four times the memory."""
        return as_floats(self.pixels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        height, width, channels = self.pixels.shape[1:]
        return channels, height, width

    def chosen(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels at some indices."""
        if isinstance(which, slice):
            return as_floats(self.pixels[which]), self.labels[which]
        return as_floats(self.pixels.index_select(0, which)), self.labels[which]

    def first(self, count: int) -> Examples:
        """Return the first examples as floats in memory; a warning says where they lack classes."""
        warn_of_class_order(self.labels, count)
        held = self.chosen(slice(count))
        return Examples(*held, self.bounds, self.classes, framing=self.framing)

    def part(self, which: slice) -> "Images":
        """Return some of the images, still as bytes."""
        return replace(self, pixels=self.pixels[which], labels=self.labels[which])


def as_floats(pixels: Tensor) -> Tensor:
    """Return bytes as floats from 0 to 1: (N, H, W, channels) -> (N, channels, H, W)."""
    return pixels.permute(0, 3, 1, 2).float().div_(255)


def in_range(pixels: Tensor, bounds: Bounds | None) -> Tensor:
    """Return bytes as floats in the range of data: (N, H, W, channels) -> (N, channels, H, W)."""
    images = as_floats(pixels)
    return images if bounds is None else bounds.low + bounds.range * images


def framing_of(part: Part) -> Framing:
    """Return how image files become inputs like those of a part."""
    own: Framing | None = getattr(part, "framing", None)  # a user's own part need not have it
    return own or framing_of_shape(part.shape)


def as_images(
    pixels: numpy.ndarray,
    labels: numpy.ndarray,
    classes: tuple[str, ...],
    source: object,
    framing: Framing | None = None,
) -> Images:
    """Return bytes (N, H, W) or (N, H, W, channels) as images; errors name the source."""
    if len(pixels) != len(labels):
        raise UserError(
            f"{source}: expected one label per image, got {len(pixels)} images and {len(labels)} "
            "labels: do the files belong together?"
        )
    whole = pixels[..., None] if pixels.ndim == 3 else pixels
    try:
        numbers = torch.from_numpy(labels.astype("int64"))
        return Images(torch.from_numpy(whole), numbers, classes, framing=framing)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
