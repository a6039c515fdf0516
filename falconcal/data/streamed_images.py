"""Images that stay on disk: decoded by worker processes as they are needed, never all in memory."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from falconcal.data.bounds import Bounds
from falconcal.data.images import PIXEL_BOUNDS, as_floats, framing_of
from falconcal.data.input_checks import check_labels
from falconcal.data.part import (
    Augment,
    Examples,
    Part,
    SeededBatches,
    augmented,
    epoch_order,
    warn_of_class_order,
)
from falconcal.errors import UserError
from falconcal.io.image_files import Framing, ImageReadError, read_image


@dataclass(frozen=True, eq=False)
class StreamedImages(Part):
    """Image files and their labels; batches are floats from 0 to 1."""

    files: Sequence[Path]  # (N,)
    labels: Tensor  # (N,)
    classes: tuple[str, ...]
    framing: Framing
    workers: int = 0  # processes that decode; 0 decodes in this one
    border: int = 0  # pixels that are cut off on every side before anything else
    bounds: Bounds = PIXEL_BOUNDS
    tokens: None = None
    texts: None = None

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.files), len(self.classes))

    @property
    def inputs(self) -> Tensor:
        """Refused: all inputs together need not fit into memory."""
        raise UserError(
            f"{len(self):,} images are streamed from disk and never all in memory: iterate over "
            "batches(), or take first(count)."
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.framing.shape

    def first(self, count: int) -> Examples:
        warn_of_class_order(self.labels, count)
        labels = self.labels[:count]
        inputs = as_floats(torch.stack([self.read(number) for number in range(len(labels))]))
        return Examples(inputs, labels, self.bounds, self.classes, framing=self.framing)

    def read(self, number: int) -> Tensor:  # (H, W, channels) uint8
        """Return one image as bytes."""
        return torch.from_numpy(read_image(self.files[number], self.framing, self.border))

    def batches(
        self,
        size: int = 100,
        *,
        shuffle: bool = False,
        seed: int = 0,
        augment: Augment | None = None,
    ) -> "StreamedBatches":
        return StreamedBatches(self, size, shuffle, seed, augment)


class StreamedBatches(SeededBatches):
    """Batches read ahead by worker processes; order and augmentation by seed and epoch alone."""

    examples: StreamedImages

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.examples)
        order = epoch_order(count, self.seed, self.epoch) if self.shuffle else torch.arange(count)
        cuts = torch.split(order, self.size)
        # bytes cross from process to process, a quarter of what floats would be
        loader = DataLoader(
            _Decoded(self.examples),
            batch_sampler=[cut.tolist() for cut in cuts],
            collate_fn=_together,
            num_workers=min(self.examples.workers, os.cpu_count() or 1),
            generator=torch.Generator(),  # else it draws from the caller's random numbers
        )
        for number, (pixels, cut) in enumerate(zip(loader, cuts, strict=True)):
            if isinstance(pixels, ImageReadError):
                raise pixels
            inputs = augmented(as_floats(pixels), self.augment, self.seed, self.epoch, number)
            yield inputs, self.examples.labels[cut]


class _Decoded(Dataset[Tensor | ImageReadError]):
    """One image by number, for worker processes."""

    def __init__(self, images: StreamedImages) -> None:
        self.images = images

    def __getitem__(self, number: int) -> Tensor | ImageReadError:
        try:
            return self.images.read(number)
        except ImageReadError as error:  # raised in a worker, its message would be a traceback
            return error


def _together(images: Sequence[Tensor | ImageReadError]) -> Tensor | ImageReadError:
    """Return images as one batch, or the first of them that could not be read."""
    read = [image for image in images if isinstance(image, Tensor)]
    refused = [image for image in images if isinstance(image, ImageReadError)]
    return refused[0] if refused else torch.stack(read)


def framed_alike(what: str, part: Part, data: Part) -> Part:
    """Return a part framed as the data is, so that no other zoom tells them apart."""
    if isinstance(part, StreamedImages):
        return replace(part, framing=framing_of(data))
    own, wanted = (getattr(one, "framing", None) for one in (part, data))  # None if it has none
    if own is not None and wanted is not None and own != wanted:
        raise UserError(
            f"expected {what} framed as the data is, {wanted}, got {own}: give both the same "
            "settings, or load the other with stream=True."
        )
    return part
