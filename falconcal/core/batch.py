"""Batches: what training, prediction and calibration iterate over."""

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy
import torch
from torch import Tensor

from falconcal.core.array_conversion import as_tensor
from falconcal.errors import UserError, described

Batch = tuple[Tensor, Tensor]  # inputs (N, ...) and labels (N,)


class Batches(Protocol):
    """Anything that can be iterated more than once and gives pairs (inputs, labels).

    A ``DataLoader``, a list of pairs, or what ``Examples.batches`` returns. Inputs are (N, ...),
    labels (N,) whole numbers, -1 for an example of no known class.

    Example:
        >>> import torch
        >>> from falconcal.data import Batches
        >>> batches: Batches = [(torch.zeros(2, 3), torch.tensor([0, 1]))]
        >>> [tuple(inputs.shape) for inputs, labels in batches]
        [(2, 3)]
    """

    def __iter__(self) -> Iterator[Batch]: ...


class EpochBatches(Batches, Protocol):
    """Batches whose order and augmentation are those of an epoch."""

    def set_epoch(self, epoch: int) -> None: ...
    def __len__(self) -> int: ...


def checked_batches(batches: Batches) -> Iterator[Batch]:
    """Yield the batches, each checked to be a pair of tensors or of arrays."""
    check_batches(batches)
    for batch in batches:
        pair = isinstance(batch, tuple | list) and len(batch) == 2
        if not pair or not all(isinstance(part, Tensor | numpy.ndarray) for part in batch):
            raise UserError(
                f"expected batches of (inputs, labels), two tensors, got {_kind(batch)}: wrap the "
                "loader so that it gives such pairs."
            )
        inputs, labels = as_tensor(batch[0], "inputs"), as_tensor(batch[1], "labels")
        check_integer_labels(labels)
        yield inputs, labels.long()


def check_integer_labels(labels: Tensor) -> None:
    """Refuse labels that are not whole numbers, before they are rounded down."""
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise UserError(f"expected whole-number labels, got {labels.dtype}: use labels.long().")


def _kind(batch: object) -> str:
    name = type(batch).__name__
    if isinstance(batch, tuple | list):
        return f"{name} of {', '.join(type(part).__name__ for part in batch)}"
    return name


def check_reiterable(batches: Batches, role: str) -> None:
    """Refuse before training what is empty or can be iterated only once."""
    check_batches(batches, role)
    if iter(batches) is batches:
        raise UserError(
            f"expected {role} batches that can be iterated more than once, got a "
            f"{type(batches).__name__}: pass a list or a DataLoader."
        )
    if next(iter(batches), None) is None:
        raise UserError(f"expected at least one {role} batch, got none: is the loader empty?")


def shape_of(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def check_batches(batches: object, role: str = "") -> None:
    """Refuse what cannot be batches at all."""
    words = f"{role} batches" if role else "batches"
    if not isinstance(batches, type) and callable(
        getattr(batches, "batches", None)
    ):  # a dataset's part
        raise UserError(
            f"expected {words}, got {type(batches).__name__}: cut it into batches of a size, as in "
            "examples.batches(100, shuffle=True)."
        )
    iterable = hasattr(type(batches), "__iter__") or hasattr(type(batches), "__getitem__")
    if not iterable or isinstance(batches, str | bytes | Mapping | Tensor | numpy.ndarray | type):
        raise UserError(
            f"expected {words} of (inputs, labels), such as a DataLoader or a list of pairs, got "
            f"{described(batches)}: make batches of arrays with falconcal.Examples(inputs, "
            "labels).batches(100)."
        )
