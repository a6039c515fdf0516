"""A dataset: its three parts and what they have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from falconcal.core.batch import Batches
from falconcal.data.bounds import Bounds
from falconcal.data.part import Augment, Part
from falconcal.data.preparation import Preparation

Modality = Literal["image", "sequence", "text", "signal"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three parts of one dataset and what they have in common.

    Args:
        name: The name of the dataset.
        modality: What the inputs are.
        classes: The names of the classes.
        bounds: The range of the inputs, if they have one.
        train: What models are trained on.
        validation: What calibrators are fitted on and epochs are chosen by.
        test: What is only measured on.
        vectors: Word vectors (tokens, width), where inputs are tokens.
        augment: Varies training batches at random.
        preparation: The first layer that a network needs for this data, if it needs one.
        encoder: Makes tokens (N, length) of N texts, where inputs are tokens.

    Example:
        >>> import torch
        >>> from falconcal import Bounds, Dataset, Examples
        >>> bounds, classes = Bounds(0, 1), ("left", "right")
        >>> def part(count):
        ...     labels = torch.arange(count) % 2
        ...     return Examples(labels[:, None].float(), labels, bounds, classes)
        >>> data = Dataset("sides", "signal", classes, bounds, part(20), part(10), part(10))
        >>> data.seen_shape
        (1,)
    """

    name: str
    modality: Modality
    classes: tuple[str, ...]
    bounds: Bounds | None
    train: Part
    validation: Part
    test: Part
    vectors: Tensor | None = None  # (tokens, width)
    augment: Augment | None = None
    preparation: Preparation | None = None
    encoder: Callable[[Sequence[str]], Tensor] | None = None  # (N,) -> (N, length)

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """The shape of one example after the preparation."""
        shape = self.train.shape
        return shape if self.preparation is None else self.preparation.shape(shape)

    def training_batches(self, size: int, seed: int) -> Batches:
        """Return batches to train on, shuffled, and augmented if the data asks for it.

        Args:
            size: Examples per batch.
            seed: The seed of order and augmentation.

        Returns:
            Batches of the training part.
        """
        return self.train.batches(size, shuffle=True, seed=seed, augment=self.augment)
