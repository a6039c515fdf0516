"""Conversion of arrays, lists and columns of tables to tensors."""

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from falconcal.core.data_frames import numbers_of
from falconcal.errors import UserError, described

ArrayLike = Tensor | numpy.ndarray | Sequence[Any]


def as_tensor(values: object, what: str) -> Tensor:
    """Return numbers as a tensor without a gradient; anything else is refused."""
    if isinstance(values, Tensor):
        _check_real(values.is_complex(), values.dtype, what)
        if values.is_inference() and not torch.is_inference_mode_enabled():
            return values.clone()  # which takes part in training, as what it was made of does not
        return values.detach() if values.requires_grad else values
    array = _as_array(_of_table(values, what), what)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(numpy.float64)
    if array.dtype == numpy.uint64:
        array = array.astype(numpy.int64)  # torch has few operations for uint64
    # torch needs native byte order, and memory that may be written to
    plain = array.dtype.isnative and array.flags.writeable and array.flags.c_contiguous
    native = array if plain else numpy.array(array, array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(native)


def _of_table(values: object, what: str) -> object:
    """Return the numbers of a data frame or a series, checked; anything else as it came."""
    if isinstance(values, numpy.ndarray | list | tuple):
        return values
    found = numbers_of(values, what)
    return values if found is None or found.dtype.kind == "O" else found


def _as_array(values: object, what: str) -> numpy.ndarray:
    if isinstance(values, list | tuple) and any(isinstance(one, Tensor) for one in values):
        values = [one.tolist() if isinstance(one, Tensor) else one for one in values]
    try:
        array = numpy.asarray(values)
    except Exception as error:  # rows of different lengths, or an object's own conversion fails
        raise UserError(
            f"expected {what} as numbers of one shape, got {described(values)}: {error}."
        ) from None
    if array.dtype.kind == "O" or array.dtype.kind in "US":
        raise UserError(
            f"expected {what} as numbers, a tensor, an array or a list, got {described(values)}."
        )
    _check_real(array.dtype.kind not in "biuf", array.dtype, what)
    return array


def _check_real(wrong: bool, dtype: object, what: str) -> None:
    if wrong:
        raise UserError(f"expected {what} as real numbers, got {dtype}.")
