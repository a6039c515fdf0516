"""What is predicted: batches of inputs, each example with its name, from any format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import torch
from torch import Tensor

from falconcal.core.batch import shape_of
from falconcal.errors import UserError
from falconcal.inference.model_metadata import ModelMetadata

BATCH = 256  # examples held in memory


@dataclass(frozen=True, eq=False)
class InputBatch:
    """Examples; those that could not be read have no inputs but a reason."""

    names: Sequence[str | int]  # (K,)
    inputs: Tensor  # (K - damaged, ...)
    damaged: dict[str, str] = field(default_factory=dict)  # name to reason


@dataclass(frozen=True, eq=False)
class InputSource:
    """Batches that can be iterated once."""

    named: str  # what the names are: file or row
    total: int | None  # examples, where that is known beforehand
    batches: Iterator[InputBatch]


def row_batch(path: Path, metadata: ModelMetadata, start: int, values: numpy.ndarray) -> InputBatch:
    """Return rows from number ``start`` on as inputs, checked: (K, ...)."""
    inputs = torch.from_numpy(values)
    if metadata.tokens is not None:
        _check_tokens(path, metadata.tokens, start, inputs)
        inputs = inputs.long()
    else:
        inputs = inputs.float()
        _check_values(path, metadata, start, inputs)
    return InputBatch(range(start, start + len(inputs)), inputs)


def _check_tokens(path: Path, tokens: int, start: int, inputs: Tensor) -> None:
    whole = inputs == inputs.long()
    bad = ~(whole & (inputs >= 0) & (inputs < tokens)).flatten(1).all(1)
    if bad.any():
        row = start + int(bad.nonzero()[0])
        raise UserError(
            f"{path}, row {row} (from 0): expected tokens, whole numbers from 0 to {tokens - 1}."
        )


def _check_values(path: Path, metadata: ModelMetadata, start: int, inputs: Tensor) -> None:
    bad = ~inputs.isfinite().flatten(1).all(1)
    if bad.any():
        row = start + int(bad.nonzero()[0])
        raise UserError(
            f"{path}, row {row} (from 0): expected finite numbers, got NaN or infinity: correct "
            "the row or leave it out."
        )
    # pixels have a range; the columns of a table may go beyond what training data held
    if metadata.bounds is not None and len(metadata.shape) == 3:
        last = start + len(inputs) - 1
        metadata.bounds.check(inputs, f"scale the data; see {path}, rows {start} to {last}")


def misshapen(
    path: Path, metadata: ModelMetadata, came: Sequence[int], dtype: numpy.dtype | None = None
) -> UserError:
    """Return the error for inputs of another shape; images may be bytes with channels last too."""
    expected = shape_of(torch.empty(0, *metadata.shape)).replace("(0,", "(N,", 1)
    if dtype == numpy.uint8 and len(metadata.shape) == 3:
        channels, height, width = metadata.shape
        expected += f", or bytes (N, {height}, {width}, {channels})"
    kind = "" if dtype is None else f" of {dtype}"
    return UserError(
        f"{path}: expected examples as the model was saved for, {expected}, got shape "
        f"{tuple(came)}{kind}."
    )
