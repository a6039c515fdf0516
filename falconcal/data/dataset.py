"""A dataset: its parts and what is known of them all."""

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
    """Three parts of one dataset and the facts that travel with it."""

    name: str
    modality: Modality
    classes: tuple[str, ...]
    bounds: Bounds | None
    train: Part
    validation: Part
    test: Part
    vectors: Tensor | None = None  # (tokens, width) of words, where inputs are tokens
    augment: Augment | None = None  # of training batches
    preparation: Preparation | None = None  # a network's first layer, where the data asks for one
    encoder: Callable[[Sequence[str]], Tensor] | None = None  # of texts, (N,) -> (N, length)

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """The shape of an example behind the preparation."""
        shape = self.train.shape
        return shape if self.preparation is None else self.preparation.shape(shape)

    def training_batches(self, size: int, seed: int) -> Batches:
        """Return what is trained on: shuffled by seed and epoch, and augmented if the data is."""
        return self.train.batches(size, shuffle=True, seed=seed, augment=self.augment)
