"""What a dataset is here: parts of examples, the bounds of their values, and batches of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral

import torch
from torch import Tensor

from falconcal.core.array_conversion import as_tensor
from falconcal.core.batch import EpochBatches
from falconcal.core.randomness import combined_seed
from falconcal.data.bounds import Bounds
from falconcal.data.input_checks import check_inputs, check_labels, check_size, check_tokens
from falconcal.data.texts import Texts
from falconcal.errors import UserError, described
from falconcal.io.image_files import Framing

Augment = Callable[[Tensor, torch.Generator], Tensor]  # a batch of inputs -> the same, varied
# examples of a batch in use: much larger ones of images fall out of a processor's cache
PREDICTION_BATCH_SIZE = 200


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


class InMemoryPart(Part):
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
class Examples(InMemoryPart):
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
        examples: InMemoryPart,
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
            yield augmented(inputs, self.augment, self.seed, self.epoch, number), labels

    def _cuts(self) -> Iterator[Tensor | slice]:
        if self.shuffle:
            yield from torch.split(
                epoch_order(len(self.examples), self.seed, self.epoch), self.size
            )
            return
        for start in range(0, len(self.examples), self.size):
            yield slice(start, start + self.size)


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order of the examples in an epoch, (count,)."""
    generator = torch.Generator().manual_seed(combined_seed(seed, epoch))
    return torch.randperm(count, generator=generator)


def augmented(inputs: Tensor, augment: Augment | None, *key: int) -> Tensor:
    """Return a batch augmented, if it is to be, with random numbers that its key alone decides."""
    if augment is None:
        return inputs
    # another number in front, for the order of the epoch has the rest of the key
    return augment(inputs, torch.Generator().manual_seed(combined_seed(1, *key)))


def count_tokens(part: Part) -> int | None:
    """Return how many tokens there are; of data that does not say, how many occur; else None."""
    if part.tokens is not None or part.first(1).inputs.is_floating_point():
        return part.tokens
    return int(part.inputs.max()) + 1
