"""What a dataset is here: examples in memory, the bounds of their values, and batches of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from falconcal.errors import UserError

Modality = Literal["image", "sequence", "text", "signal"]


class Batches(Protocol):
    """Anything that can be walked through again and again, giving (inputs, labels)."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...


@dataclass(frozen=True)
class Bounds:
    """The range that input values can take: a fact of the data, not of a method."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise UserError(
                f"expected finite bounds, low below high, got {self.low} and {self.high}."
            )

    @property
    def range(self) -> float:
        return self.high - self.low

    def clip(self, inputs: Tensor) -> Tensor:
        return inputs.clamp(self.low, self.high)


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples held in memory, checked once: finite inputs and labels from -1 (none) to C - 1."""

    inputs: Tensor  # (N, ...)
    labels: Tensor  # (N,)
    bounds: Bounds | None = None
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_inputs(self.inputs)
        check_labels(self.labels, len(self.inputs), len(self.classes) if self.classes else None)

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int = 100, *, shuffle: bool = False, seed: int = 0) -> "TensorBatches":
        return TensorBatches(self, size, shuffle, seed)

    def repeated(self, inputs: Tensor) -> "Examples":
        """Return other inputs for the same labels, once or several times over: (K * N, ...)."""
        return replace(self, inputs=inputs, labels=self.labels.repeat(len(inputs) // len(self)))

    def first(self, count: int) -> "Examples":
        return replace(self, inputs=self.inputs[:count], labels=self.labels[:count])


class TensorBatches:
    """Batches cut from tensors by index; the order of an epoch depends on seed and epoch alone.

    A loader that collates example by example spends its time in Python; this one does not.
    """

    def __init__(self, examples: Examples, size: int, shuffle: bool, seed: int) -> None:
        if size < 1:
            raise UserError(f"a batch holds at least 1 example, got size {size}.")
        self.examples, self.size, self.shuffle, self.seed = examples, size, shuffle, seed
        self.bounds, self.classes = examples.bounds, examples.classes
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.examples) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, labels = self.examples.inputs, self.examples.labels
        if not self.shuffle:
            yield from zip(
                torch.split(inputs, self.size), torch.split(labels, self.size), strict=True
            )
            return
        for chosen in torch.split(self._order(), self.size):
            yield inputs[chosen], labels[chosen]

    def _order(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        return torch.randperm(len(self.examples), generator=generator)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three parts of one dataset and the facts that travel with it."""

    name: str
    modality: Modality
    classes: tuple[str, ...]
    bounds: Bounds | None
    train: Examples
    validation: Examples
    test: Examples


def check_inputs(inputs: Tensor) -> None:
    """Refuse inputs that are empty or hold NaN or infinity, naming the first bad example."""
    if inputs.ndim < 1 or len(inputs) == 0:
        raise UserError(f"expected at least one example, got inputs of shape {shape(inputs)}.")
    if not inputs.is_floating_point():
        return
    bad = ~torch.isfinite(inputs).flatten(1).all(1) if inputs.ndim > 1 else ~inputs.isfinite()
    if bad.any():
        first = int(bad.nonzero()[0])
        raise UserError(
            f"expected finite inputs, got NaN or infinity in {int(bad.sum())} of {len(inputs)} "
            f"examples, the first at index {first}: remove or repair them."
        )


def check_labels(labels: Tensor, examples: int, classes: int | None) -> None:
    """Refuse labels that are not one whole number an example, from -1 up to below ``classes``."""
    if labels.shape != (examples,):
        raise UserError(
            f"expected one label an example, shape ({examples},), got shape {shape(labels)}."
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise UserError(f"expected whole-number labels, got {labels.dtype}: use labels.long().")
    highest = classes - 1 if classes is not None else int(labels.max())
    bad = (labels < -1) | (labels > highest)
    if bad.any():
        index = int(bad.nonzero()[0])
        raise UserError(
            f"expected labels from 0 to {highest} (or -1 for no known class), got "
            f"{int(labels[index])} at index {index}: check the labels and the number of outputs."
        )


def shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
