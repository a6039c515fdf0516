"""The arrays of the estimator: the shape of an example, its bounds, what is held out."""

from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split
from torch import Tensor

from falconcal.data import Bounds
from falconcal.errors import UserError

Shape = tuple[int, ...]


def hold_out(
    codes: NDArray[numpy.int64], fraction: float, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the indices of examples to train on and of those held out, stratified if possible.

    The only example of a class is always trained on.
    """
    if not 0 < fraction < 1:
        raise UserError(f"expected validation_fraction between 0 and 1, got {fraction}.")
    counts = numpy.bincount(codes)
    several, alone = (numpy.flatnonzero(which) for which in (counts[codes] > 1, counts[codes] == 1))
    classes, held = int((counts > 1).sum()), max(1, round(fraction * len(codes)))
    if held >= len(several):
        raise UserError(
            f"expected enough examples to hold out {held} by validation_fraction={fraction}, got "
            f"{len(codes)} in {len(counts)} classes: give more, or set early_stopping=False."
        )
    possible = classes <= held <= len(several) - classes
    train, validation = train_test_split(
        several,
        test_size=held,
        random_state=seed,
        stratify=codes[several] if possible else None,
    )
    return numpy.concatenate([train, alone]), validation


def shape_of_example(array: ArrayLike) -> Shape:
    """Return the shape of one example, also of sparse matrices and data frames."""
    shape: Shape = array.shape if hasattr(array, "shape") else numpy.asarray(array).shape
    return tuple(shape[1:])


def as_rows(array: ArrayLike) -> ArrayLike:
    """Return arrays of more than two dimensions as tables; others are not changed."""
    if len(shape_of_example(array)) < 2:
        return array
    whole = numpy.asarray(array)
    return whole.reshape(len(whole), int(numpy.prod(whole.shape[1:])))


def with_channel(shape: Shape) -> Shape:
    """Return the shape of a grey image with its one channel."""
    return (1, *shape) if len(shape) == 2 else shape


def check_square(shape: Shape) -> None:
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] < 12:
        raise UserError(
            "expected a table, or square images of 12 x 12 pixels or more, as (N, height, width) "
            f"or (N, channels, height, width), got examples of shape {shape}: for others pass a "
            "module."
        )


def range_of(inputs: Tensor) -> Bounds | None:
    """Return the lowest and the highest value; None if they are equal."""
    low, high = (float(value) for value in inputs.aminmax())
    return Bounds(low, high) if low < high else None
