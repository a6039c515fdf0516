"""What a dataset is here: parts of examples, the bounds of their values, and batches of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Literal, Protocol

import numpy
import torch
from torch import Tensor

from falconcal.data.conversion import as_tensor
from falconcal.data.preparation import Preparation
from falconcal.data.texts import Texts
from falconcal.errors import UserError, described
from falconcal.io.image_files import Framing

Modality = Literal["image", "sequence", "text", "signal"]
Augment = Callable[[Tensor, torch.Generator], Tensor]  # a batch of inputs -> the same, varied
# examples of a batch in use: much larger ones of images fall out of a processor's cache
AT_ONCE = 200


class Batches(Protocol):
    """Anything that can be walked through again and again, giving (inputs, labels)."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...


@dataclass(frozen=True)
class Bounds:
    """The range that input values can take: a fact of the data, not of a method."""

    low: float
    high: float

    def __post_init__(self) -> None:
        both = (self.low, self.high)
        if not all(isinstance(end, Real) for end in both):
            raise UserError(f"expected bounds that are numbers, got {both}.")
        if not -math.inf < self.low < self.high < math.inf:
            raise UserError(
                f"expected finite bounds, low below high, got {self.low} and {self.high}."
            )

    @property
    def range(self) -> float:
        return self.high - self.low

    def clip(self, inputs: Tensor) -> Tensor:
        return inputs.clamp(self.low, self.high)

    def check(
        self, inputs: Tensor, advice: str = "state the bounds that the data has, or scale the data"
    ) -> None:
        """Refuse inputs that lie outside by more than rounding."""
        low, high = (float(end) for end in inputs.aminmax())
        slack = 1e-4 * self.range
        if low < self.low - slack or high > self.high + slack:
            raise UserError(
                f"expected inputs from {self.low:g} to {self.high:g}, got {low:g} to {high:g}: "
                f"{advice}."
            )


class EpochBatches(Batches, Protocol):
    """Batches whose order and augmentation are those of an epoch."""

    def set_epoch(self, epoch: int) -> None: ...
    def __len__(self) -> int: ...


class Part(ABC):
    """Examples for training, validation or test, wherever they lie: in memory, or read as needed.

    Whoever can walks through batches. ``inputs`` brings everything into memory as it is given out.
    """

    inputs: Tensor  # (N, ...)
    labels: Tensor  # (N,)
    bounds: Bounds | None
    classes: tuple[str, ...] | None
    tokens: int | None  # how many different ones, where inputs are whole numbers
    texts: Texts | None  # of which the tokens were made, if they are kept
    framing: Framing | None  # how picture files became these examples, if they did

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one example."""

    @abstractmethod
    def first(self, count: int) -> "Examples":
        """Return the first examples, in memory."""

    @abstractmethod
    def batches(
        self,
        size: int = 100,
        *,
        shuffle: bool = False,
        seed: int = 0,
        augment: Augment | None = None,
    ) -> EpochBatches:
        """Return batches of the examples, shuffled by seed and epoch if asked for."""

    def __len__(self) -> int:
        return len(self.labels)

    def repeated(self, inputs: Tensor) -> "Examples":
        """Return other inputs for the same labels, once or several times over: (K * N, ...).

        What was shifted may leave the bounds, so they are not stated.
        """
        labels = self.labels.repeat(len(inputs) // len(self))
        return Examples(inputs, labels, None, self.classes, self.tokens)


class Held(Part):
    """A part of which any examples can be had at once."""

    @abstractmethod
    def chosen(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels of some examples."""

    def batches(
        self,
        size: int = 100,
        *,
        shuffle: bool = False,
        seed: int = 0,
        augment: Augment | None = None,
    ) -> "TensorBatches":
        return TensorBatches(self, size, shuffle, seed, augment)


@dataclass(frozen=True, eq=False)
class Examples(Held):
    """Examples held in memory, checked once: finite inputs and labels from -1 (none) to C - 1."""

    inputs: Tensor  # (N, ...)
    labels: Tensor  # (N,)
    bounds: Bounds | None = None
    classes: tuple[str, ...] | None = None
    tokens: int | None = None  # how many there are, padding 0 included, if inputs are tokens
    texts: Texts | None = None  # the raw text of tokens, if it is kept
    framing: Framing | None = None  # how picture files became the inputs, if they did

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", as_tensor(self.inputs, "inputs"))
        object.__setattr__(self, "labels", as_tensor(self.labels, "labels"))
        self._check_facts()
        check_inputs(self.inputs)
        check_tokens(self.inputs, self.tokens)
        if self.texts is not None and len(self.texts) != len(self.inputs):
            raise UserError(
                f"expected a text an example, {len(self.inputs)}, got {len(self.texts)}."
            )
        check_labels(self.labels, len(self.inputs), len(self.classes) if self.classes else None)
        object.__setattr__(self, "labels", self.labels.long())
        if self.bounds is not None:
            self.bounds.check(self.inputs)

    def _check_facts(self) -> None:
        if not isinstance(self.bounds, Bounds | None):
            raise UserError(f"expected falconcal.Bounds or None, got {described(self.bounds)}.")
        if not isinstance(self.classes, list | tuple | None):
            raise UserError(
                f"expected the names of the classes in a tuple, got {described(self.classes)}."
            )
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
        if not isinstance(self.tokens, Integral | None):
            raise UserError(
                f"expected the number of different tokens, got {described(self.tokens)}."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example."""
        return tuple(self.inputs.shape[1:])

    def chosen(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels of some examples."""
        if isinstance(which, slice):
            return self.inputs[which], self.labels[which]
        return self.inputs.index_select(0, which), self.labels[which]  # faster than inputs[which]

    def first(self, count: int) -> "Examples":
        texts = self.texts.part(0, count) if self.texts is not None else None
        return replace(self, inputs=self.inputs[:count], labels=self.labels[:count], texts=texts)


class TensorBatches:
    """Batches cut from tensors by index; the order of an epoch depends on seed and epoch alone.

    A loader that collates example by example spends its time in Python; this one does not.
    """

    def __init__(
        self,
        examples: Held,
        size: int,
        shuffle: bool,
        seed: int,
        augment: Augment | None = None,
    ) -> None:
        check_size(size)
        self.examples, self.size, self.shuffle, self.seed = examples, size, shuffle, seed
        self.bounds, self.classes, self.augment = examples.bounds, examples.classes, augment
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.examples) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number, which in enumerate(self._cuts()):
            inputs, labels = self.examples.chosen(which)
            yield varied(inputs, self.augment, self.seed, self.epoch, number), labels

    def _cuts(self) -> Iterator[Tensor | slice]:
        if self.shuffle:
            yield from torch.split(
                epoch_order(len(self.examples), self.seed, self.epoch), self.size
            )
            return
        for start in range(0, len(self.examples), self.size):
            yield slice(start, start + self.size)


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


def check_size(size: int) -> None:
    if not isinstance(size, Integral) or size < 1:
        raise UserError(f"a batch holds at least 1 example, a whole number, got size {size!r}.")


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order of the examples in an epoch, (count,)."""
    generator = torch.Generator().manual_seed(mixed_seed(seed, epoch))
    return torch.randperm(count, generator=generator)


def varied(inputs: Tensor, augment: Augment | None, *key: int) -> Tensor:
    """Return a batch augmented, if it is to be, with random numbers that its key alone decides."""
    if augment is None:
        return inputs
    # another number in front, for the order of the epoch has the rest of the key
    return augment(inputs, torch.Generator().manual_seed(mixed_seed(1, *key)))


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


def check_tokens(inputs: Tensor, tokens: int | None) -> None:
    """Refuse inputs that are not the tokens that they are said to be."""
    if tokens is None:
        return
    if inputs.is_floating_point():
        raise UserError(f"expected tokens, whole numbers, got {inputs.dtype}: leave tokens empty.")
    low, high = (int(end) for end in inputs.aminmax())
    if low < 0 or high >= tokens:
        raise UserError(
            f"expected tokens from 0 to {tokens - 1}, got {low} to {high}: state how many "
            "different tokens there are, padding included."
        )


def count_tokens(part: Part) -> int | None:
    """Return how many tokens there are; of data that does not say, how many occur; else None."""
    if part.tokens is not None or part.first(1).inputs.is_floating_point():
        return part.tokens
    return int(part.inputs.max()) + 1


def check_labels(labels: Tensor, examples: int, classes: int | None) -> None:
    """Refuse labels that are not one whole number an example, from -1 up to below ``classes``."""
    if labels.shape != (examples,):
        raise UserError(
            f"expected one label an example, shape ({examples},), got shape {shape(labels)}."
        )
    check_whole(labels)
    labels = labels.long()  # unsigned ones would wrap below 0
    highest = classes - 1 if classes is not None else int(labels.max())
    if len(labels) and (labels.min() < -1 or labels.max() > highest):
        index = int(((labels < -1) | (labels > highest)).nonzero()[0])
        raise UserError(
            f"expected labels from 0 to {highest} (or -1 for no known class), got "
            f"{int(labels[index])} at index {index}: check the labels and the number of outputs."
        )


def mixed_seed(*parts: int) -> int:
    """Return one seed of several numbers, within what a generator takes."""
    mixed = 0
    for part in parts:
        mixed = (mixed * 1_000_003 + part) % 2**63
    return mixed


def pairs(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    """Walk through batches, each checked to be a pair of tensors, or of arrays."""
    check_batches(batches)
    for batch in batches:
        pair = isinstance(batch, tuple | list) and len(batch) == 2
        if not pair or not all(isinstance(part, Tensor | numpy.ndarray) for part in batch):
            raise UserError(
                f"expected batches of (inputs, labels), two tensors, got {_kind(batch)}: wrap the "
                "loader so that it gives such pairs."
            )
        inputs, labels = as_tensor(batch[0], "inputs"), as_tensor(batch[1], "labels")
        check_whole(labels)
        yield inputs, labels.long()


def check_whole(labels: Tensor) -> None:
    """Refuse labels that are no whole numbers, before they are cut off."""
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise UserError(f"expected whole-number labels, got {labels.dtype}: use labels.long().")


def _kind(batch: object) -> str:
    name = type(batch).__name__
    if isinstance(batch, tuple | list):
        return f"{name} of {', '.join(type(part).__name__ for part in batch)}"
    return name


def check_batches(batches: object, role: str = "") -> None:
    """Refuse what cannot be batches at all."""
    words = f"{role} batches" if role else "batches"
    if isinstance(batches, Part):
        raise UserError(
            f"expected {words}, got {type(batches).__name__} that are not cut into any: say their "
            "size, as in examples.batches(100, shuffle=True)."
        )
    walkable = hasattr(type(batches), "__iter__") or hasattr(type(batches), "__getitem__")
    if not walkable or isinstance(batches, str | bytes | Mapping | Tensor | numpy.ndarray | type):
        raise UserError(
            f"expected {words} of (inputs, labels), such as a DataLoader or a list of pairs, got "
            f"{described(batches)}: arrays become batches by falconcal.Examples(inputs, "
            "labels).batches(100)."
        )


def check_walkable(batches: Batches, role: str) -> None:
    """Refuse before training what is empty or can be walked through only once."""
    check_batches(batches, role)
    if iter(batches) is batches:
        raise UserError(
            f"expected {role} batches that can be walked through again and again, got a one-way "
            f"{type(batches).__name__}: make it a list or a DataLoader."
        )
    if next(iter(batches), None) is None:
        raise UserError(f"expected at least one {role} batch, got none: is the loader empty?")


def shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
