"""Parts of a dataset: examples with their labels, and batches of them."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from falconcal.core.array_conversion import as_tensor
from falconcal.core.batch import Batch, EpochBatches, check_weights
from falconcal.core.model_inputs import Inputs, ModelInputs, main_of
from falconcal.core.randomness import combined_seed
from falconcal.data.bounds import Bounds
from falconcal.data.input_checks import check_inputs, check_labels, check_size, check_tokens
from falconcal.data.texts import Texts
from falconcal.errors import ClassOrderWarning, UserError, described
from falconcal.io.image_files import Framing

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""A function that varies a batch of inputs (N, ...) at random and returns one of the same shape."""

PREDICTION_BATCH_SIZE = 200
"""Examples per batch in prediction; much larger batches of images do not fit a CPU's cache."""


class Part(ABC):
    """Examples for training, validation or test, in memory or read from disk as needed.

    ``Examples`` and ``Images`` are parts in memory. Iterate over ``batches`` where you can:
    ``inputs`` brings all examples into memory.

    Attributes:
        inputs: All inputs, (N, ...).
        labels: Whole numbers (N,), -1 for an example of no known class.
        bounds: The range of the inputs, if they have one.
        classes: The names of the classes, if they have names.
        tokens: The number of different tokens, padding included, where inputs are tokens.
        texts: The raw texts that tokens were made of, if they are kept.
        framing: How image files became these examples, if they did.

    Example:
        >>> import falconcal
        >>> part = falconcal.load_dataset("digits").test
        >>> len(part), part.shape
        (397, (1, 28, 28))
        >>> inputs, labels = next(iter(part.batches(32)))
        >>> inputs.shape
        torch.Size([32, 1, 28, 28])
    """

    inputs: Any  # (N, ...), one tensor, or several
    labels: Tensor  # (N,)
    bounds: Bounds | None
    classes: tuple[str, ...] | None
    tokens: int | None
    texts: Texts | None
    framing: Framing | None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""

    @abstractmethod
    def first(self, count: int) -> "Examples":
        """Return the first examples, in memory; a warning says where they lack classes."""

    def head(self, count: int) -> "Examples":
        """Return the first examples, whatever classes they have."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClassOrderWarning)
            return self.first(count)

    @abstractmethod
    def batches(
        self,
        size: int = 100,
        *,
        shuffle: bool = False,
        seed: int = 0,
        augment: Augment | None = None,
    ) -> EpochBatches:
        """Return batches of the examples.

        Args:
            size: Examples per batch; the last batch may have fewer.
            shuffle: Whether each epoch has another order, which depends on seed and epoch alone.
            seed: The seed of order and augmentation.
            augment: Varies the inputs of each batch at random.

        Returns:
            What can be iterated once per epoch and gives (inputs, labels).
        """

    def __len__(self) -> int:
        return len(self.labels)

    def repeated(self, inputs: Inputs) -> "Examples":
        """Return other inputs with the labels of this part.

        Args:
            inputs: One or more copies of the part's inputs, (K * N, ...). Shifted inputs may lie
                outside the bounds, so the result has none.

        Returns:
            The inputs with the labels K times over.
        """
        labels = self.labels.repeat(len(inputs) // len(self))
        return Examples(inputs, labels, None, self.classes, self.tokens)


class InMemoryPart(Part):
    """A part whose examples can be looked up by index."""

    @abstractmethod
    def chosen(self, which: Tensor | slice) -> tuple[Any, Tensor]:
        """Return the inputs and labels at some indices."""

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
    """Examples held in memory, checked once.

    Args:
        inputs: Finite numbers, or tokens, (N, ...): a tensor, an array or a list. A mapping holds
            several inputs by name.
        labels: Whole numbers (N,) from 0 to C - 1, or -1 for an example of no known class.
        bounds: The range of the inputs, which FALCON and FGSM need.
        classes: The names of the C classes.
        tokens: The number of different tokens, padding 0 included, if inputs are tokens.
        texts: The raw texts of the tokens, if they are kept.
        framing: How image files became the inputs, if they did.
        weights: How much each example counts in training, (N,); None counts all alike.

    Raises:
        UserError: Inputs are not finite or lie outside the bounds, or labels do not fit.

    Example:
        >>> import torch
        >>> from falconcal import Bounds, Examples
        >>> inputs = torch.rand(6, 2)
        >>> examples = Examples(inputs, [0, 1, 0, 1, 0, 1], Bounds(0, 1))
        >>> len(examples), examples.shape
        (6, (2,))
        >>> [len(labels) for _, labels in examples.batches(4)]
        [4, 2]
    """

    inputs: Any  # (N, ...), one tensor, or several
    labels: Tensor  # (N,)
    bounds: Bounds | None = None
    classes: tuple[str, ...] | None = None
    tokens: int | None = None
    texts: Texts | None = None
    framing: Framing | None = None
    weights: Tensor | None = None  # (N,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _as_inputs(self.inputs))
        object.__setattr__(self, "labels", as_tensor(self.labels, "labels"))
        self._check_metadata()
        check_inputs(self.inputs)
        check_tokens(main_of(self.inputs), self.tokens)
        if self.texts is not None and len(self.texts) != len(self.inputs):
            raise UserError(
                f"expected one text per example ({len(self.inputs)}), got {len(self.texts)}."
            )
        check_labels(self.labels, len(self.inputs), len(self.classes) if self.classes else None)
        object.__setattr__(self, "labels", self.labels.long())
        if self.bounds is not None:
            self.bounds.check(main_of(self.inputs))
        checked = check_weights(self.weights, len(self.inputs))
        object.__setattr__(self, "weights", checked)

    def _check_metadata(self) -> None:
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
        """The shape of one example."""
        return tuple(self.inputs.shape[1:])

    def chosen(self, which: Tensor | slice) -> tuple[Any, Tensor]:
        """Return the inputs and labels at some indices."""
        if isinstance(which, slice):
            return self.inputs[which], self.labels[which]
        return self.inputs.index_select(0, which), self.labels[which]  # faster than inputs[which]

    def first(self, count: int) -> "Examples":
        """Return the first examples; a warning says where they lack classes."""
        warn_of_class_order(self.labels, count)
        texts = self.texts.part(0, count) if self.texts is not None else None
        weights = None if self.weights is None else self.weights[:count]
        inputs, labels = self.inputs[:count], self.labels[:count]
        return replace(self, inputs=inputs, labels=labels, texts=texts, weights=weights)


def warn_of_class_order(labels: Tensor, count: int) -> None:
    """Warn where the first examples lack classes because the data is in class order."""
    known = labels[labels >= 0]
    if count >= len(labels) or len(known) < 2 or not bool((known.diff() >= 0).all()):
        return
    found, every = (len(set(part.tolist())) for part in (labels[:count], known))
    if found < every and count >= every:
        warnings.warn(
            f"the first {count} examples have {found} of {every} classes, since the data is in "
            f"class order: draw from all over it with falconcal.data.sample(part, {count}).",
            ClassOrderWarning,
            stacklevel=3,
        )


def _as_inputs(given: Any) -> Inputs:
    """Return inputs as a tensor, or as several where they are a mapping."""
    if isinstance(given, ModelInputs):
        return given
    if isinstance(given, Mapping):
        return ModelInputs((), {name: as_tensor(one, name) for name, one in given.items()})
    return as_tensor(given, "inputs")


class SeededBatches:
    """What batches of any part share: size, seed and the epoch that comes next."""

    def __init__(
        self,
        examples: Part,
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
        """Choose the epoch whose order and augmentation come next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.examples) // self.size)


class TensorBatches(SeededBatches):
    """Batches cut from tensors by index; the order of an epoch depends on seed and epoch alone.

    It is what ``Examples.batches`` returns, and quicker than a loader that collates example by
    example.

    Args:
        examples: The part that batches are cut from.
        size: Examples per batch; the last batch may have fewer.
        shuffle: Whether each epoch has another order.
        seed: The seed of order and augmentation.
        augment: Varies the inputs of each batch at random.

    Raises:
        UserError: ``size`` is not a whole number above 0.

    Example:
        >>> from falconcal import Examples
        >>> batches = Examples([[1.0], [2.0], [3.0]], [0, 1, 0]).batches(2)
        >>> len(batches)
        2
        >>> [inputs.flatten().tolist() for inputs, labels in batches]
        [[1.0, 2.0], [3.0]]
    """

    examples: InMemoryPart

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        for number, which in enumerate(self._cuts()):
            inputs, labels = self.examples.chosen(which)
            varied = augmented(inputs, self.augment, self.seed, self.epoch, number)
            weights = getattr(self.examples, "weights", None)
            if weights is None:
                yield varied, labels
            else:
                yield Batch(varied, labels, weights[which])

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
    """Return a batch, augmented with random numbers that depend on its key alone, if at all."""
    if augment is None:
        return inputs
    # one more number, because the order of the epoch has the rest of the key
    return augment(inputs, torch.Generator().manual_seed(combined_seed(1, *key)))


def count_tokens(part: Part) -> int | None:
    """Return the number of different tokens, as stated or as found; None if inputs are numbers."""
    if part.tokens is not None or part.first(1).inputs.is_floating_point():
        return part.tokens
    return int(part.inputs.max()) + 1
