"""Images that stay on disk: decoded by worker processes as they are needed, never all in memory."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from falconcal.data.examples import (
    Augment,
    Bounds,
    Examples,
    Part,
    check_labels,
    check_size,
    epoch_order,
    varied,
)
from falconcal.data.images import PIXELS, as_floats
from falconcal.errors import UserError

MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Framing:
    """How an image becomes one of the right size: its border cut off, its shorter side resized to
    ``resize``, then the middle ``crop`` x ``crop`` of it; without ``resize`` stretched to size."""

    crop: int
    resize: int | None = None
    border: int = 0
    channels: int = 3

    def read(self, path: Path) -> numpy.ndarray:
        """Return an image file as bytes, (crop, crop, channels)."""
        try:
            with Image.open(path) as image:
                if image.mode[0] in "IF":
                    raise ValueError(f"expected 8 bits a channel, its mode is {image.mode}")
                framed = self._framed(image.convert(MODES[self.channels]))
        except Exception as error:  # a decoder raises whatever it likes on damaged data
            raise UserError(f"{path}: cannot be read as an image: {error}.") from None
        return numpy.array(framed).reshape(self.crop, self.crop, self.channels)

    def _framed(self, image: Image.Image) -> Image.Image:
        if self.border:
            width, height = image.size
            image = image.crop(
                (self.border, self.border, width - self.border, height - self.border)
            )
        if self.resize is None:
            return image.resize((self.crop, self.crop), Image.Resampling.BILINEAR)
        scale = self.resize / min(image.size)
        size = [max(self.resize, round(side * scale)) for side in image.size]
        left, top = ((side - self.crop) // 2 for side in size)
        resized = image.resize((size[0], size[1]), Image.Resampling.BILINEAR)
        return resized.crop((left, top, left + self.crop, top + self.crop))


@dataclass(frozen=True, eq=False)
class StreamedImages(Part):
    """Image files and their labels; what is given out are floats from 0 to 1."""

    files: Sequence[Path]  # (N,)
    labels: Tensor  # (N,)
    classes: tuple[str, ...]
    framing: Framing
    workers: int = 0  # processes that decode; 0 decodes in this one
    bounds: Bounds = PIXELS
    tokens: None = None
    texts: None = None

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.files), len(self.classes))

    @property
    def inputs(self) -> Tensor:  # type: ignore[override]
        """Refused: whoever asks for all inputs would read a disk into memory."""
        raise UserError(
            f"{len(self):,} images are streamed from disk and never all in memory: walk through "
            "batches, or take first(count)."
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.framing.channels, self.framing.crop, self.framing.crop

    def first(self, count: int) -> Examples:
        pixels = [torch.from_numpy(self.framing.read(file)) for file in self.files[:count]]
        return Examples(
            as_floats(torch.stack(pixels)), self.labels[:count], self.bounds, self.classes
        )

    def batches(
        self,
        size: int = 100,
        *,
        shuffle: bool = False,
        seed: int = 0,
        augment: Augment | None = None,
    ) -> "StreamedBatches":
        return StreamedBatches(self, size, shuffle, seed, augment)


class StreamedBatches:
    """Batches read ahead by worker processes; order and augmentation by seed and epoch alone."""

    def __init__(
        self, images: StreamedImages, size: int, shuffle: bool, seed: int, augment: Augment | None
    ) -> None:
        check_size(size)
        self.images, self.size, self.shuffle, self.seed = images, size, shuffle, seed
        self.bounds, self.classes, self.augment = images.bounds, images.classes, augment
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.images) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.images)
        order = epoch_order(count, self.seed, self.epoch) if self.shuffle else torch.arange(count)
        cuts = torch.split(order, self.size)
        # bytes cross from process to process, a quarter of what floats would be
        loader = DataLoader(
            _Decoded(self.images),
            batch_sampler=[cut.tolist() for cut in cuts],
            num_workers=min(self.images.workers, os.cpu_count() or 1),
            generator=torch.Generator(),  # else it draws from the caller's random numbers
        )
        for number, (pixels, cut) in enumerate(zip(loader, cuts, strict=True)):
            inputs = varied(as_floats(pixels), self.augment, self.seed, self.epoch, number)
            yield inputs, self.images.labels[cut]


class _Decoded(Dataset[Tensor]):
    """One image by number, as worker processes want it."""

    def __init__(self, images: StreamedImages) -> None:
        self.files, self.framing = images.files, images.framing

    def __getitem__(self, number: int) -> Tensor:  # (H, W, channels) uint8
        return torch.from_numpy(self.framing.read(self.files[number]))
