"""Batches: what training, prediction and calibration iterate over."""

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy
import torch
from torch import Tensor

from falconcal.core.array_conversion import as_tensor
from falconcal.errors import UserError, described


class Batches(Protocol):
    """Anything that can be walked through again and again, giving (inputs, labels)."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...


class EpochBatches(Batches, Protocol):
    """Batches whose order and augmentation are those of an epoch."""

    def set_epoch(self, epoch: int) -> None: ...
    def __len__(self) -> int: ...


def checked_batches(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
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
        check_integer_labels(labels)
        yield inputs, labels.long()


def check_integer_labels(labels: Tensor) -> None:
    """Refuse labels that are no whole numbers, before they are cut off."""
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise UserError(f"expected whole-number labels, got {labels.dtype}: use labels.long().")


def _kind(batch: object) -> str:
    name = type(batch).__name__
    if isinstance(batch, tuple | list):
        return f"{name} of {', '.join(type(part).__name__ for part in batch)}"
    return name


def check_reiterable(batches: Batches, role: str) -> None:
    """Refuse before training what is empty or can be walked through only once."""
    check_batches(batches, role)
    if iter(batches) is batches:
        raise UserError(
            f"expected {role} batches that can be walked through again and again, got a one-way "
            f"{type(batches).__name__}: make it a list or a DataLoader."
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
