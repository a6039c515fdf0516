"""Your own numbers: an NPZ file of arrays, or a CSV file of a row an example.

Both may bring parts of their own; a part that is not there is held out of training, a seeded share
of every class. Numbers are taken as they are: scale them beforehand.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy
import polars
import torch
from pydantic import Field

from falconcal.data.examples import Bounds, Dataset, Examples, Modality, Part
from falconcal.data.images import as_images
from falconcal.data.own_folders import HeldOut, held_out_of
from falconcal.data.places import folders
from falconcal.errors import UserError, did_you_mean
from falconcal.settings import settings

PARTS = ("train", "validation", "test")
Pair = tuple[numpy.ndarray, numpy.ndarray]  # inputs (N, ...) and labels (N,)
Range = Annotated[tuple[float, float], Field(strict=False)]


@settings
class Npz:
    """An NPZ file of train_inputs, train_labels, and so for validation and test.

    Inputs are bytes of images (N, H, W) or (N, H, W, channels), other whole numbers as tokens, or
    floats of any shape. An array ``classes`` may name the classes.
    """

    path: str
    bounds: Range | None = None  # of floats; bytes of images have theirs
    held_out: HeldOut = 0.1

    def load(self) -> Dataset:
        (path,) = folders((), self.path)
        arrays = _arrays(path)
        pairs = {part: _pair(path, arrays, part) for part in PARTS}
        classes = _classes(arrays, pairs)
        whole = with_all_parts(pairs, classes, self.held_out)
        bounds = None if self.bounds is None else Bounds(*self.bounds)
        return _dataset("npz", path, whole, classes, bounds)


@settings
class Csv:
    """A CSV file with a column of labels; all the others are numbers."""

    path: str
    label: str = "label"
    test: str | None = None  # a second file, for test
    held_out: HeldOut = 0.1

    def load(self) -> Dataset:
        (path,) = folders((), self.path)
        columns, labels = _table(path, self.label)
        classes = tuple(sorted(set(labels)))
        pairs = {"train": _numbered(path, columns, labels, classes)}
        if self.test is not None:
            (file,) = folders((), self.test)
            tested, labels = _table(file, self.label)
            pairs["test"] = _numbered(file, _like(file, tested, columns), labels, classes)
        return _dataset("csv", path, with_all_parts(pairs, classes, self.held_out), classes, None)


def with_all_parts(
    pairs: Mapping[str, Pair | None], classes: Sequence[str], share: float
) -> dict[str, Pair]:
    """Return three parts; what is missing is held out of training."""
    train = pairs["train"]
    assert train is not None
    found = {}
    for part in ("test", "validation"):
        given = pairs.get(part)
        if given is None:
            taken = held_out_of(train[1], classes, share)
            given = train[0][taken], train[1][taken]
            train = train[0][~taken], train[1][~taken]
        found[part] = given
    return {**found, "train": train}


def _dataset(
    name: str,
    path: Path,
    pairs: Mapping[str, Pair],
    classes: tuple[str, ...],
    bounds: Bounds | None,
) -> Dataset:
    tokens = _token_count(pairs)
    train, validation, test = (_part(path, *pairs[part], classes, bounds, tokens) for part in PARTS)
    modality: Modality = "signal"
    if len(train.shape) == 3:
        modality = "image"
    elif tokens is not None:
        modality = "text"
    return Dataset(name, modality, classes, train.bounds, train, validation, test)


def _part(
    path: Path,
    inputs: numpy.ndarray,
    labels: numpy.ndarray,
    classes: tuple[str, ...],
    bounds: Bounds | None,
    tokens: int | None,
) -> Part:
    if inputs.dtype == numpy.uint8:
        return as_images(inputs, labels, classes, path)
    values = torch.from_numpy(inputs).float() if tokens is None else torch.from_numpy(inputs).long()
    try:
        return Examples(values, torch.from_numpy(labels), bounds, classes, tokens)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _token_count(pairs: Mapping[str, Pair]) -> int | None:
    inputs = pairs["train"][0]
    if inputs.dtype.kind not in "iu" or inputs.dtype == numpy.uint8:
        return None
    return int(max(pair[0].max() for pair in pairs.values())) + 1


def _arrays(path: Path) -> dict[str, numpy.ndarray]:
    try:
        with numpy.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected an NPZ file of plain arrays: {error}.") from None


def _pair(path: Path, arrays: Mapping[str, numpy.ndarray], part: str) -> Pair | None:
    names = [f"{part}_inputs", f"{part}_labels"]
    missing = [name for name in names if name not in arrays]
    if part != "train" and len(missing) == 2:
        return None
    if missing:
        hint = did_you_mean(missing[0], arrays)
        raise UserError(f"{path}: expected the array {missing[0]}, it is not there. {hint}")
    inputs, labels = (arrays[name] for name in names)
    if inputs.dtype.kind not in "fiu" or labels.dtype.kind not in "iu":
        raise UserError(
            f"{path}: expected {names[0]} to be numbers and {names[1]} whole numbers, got "
            f"{inputs.dtype} and {labels.dtype}."
        )
    if labels.shape != inputs.shape[:1]:
        raise UserError(
            f"{path}: expected a label an example, got {names[0]} of shape {inputs.shape} and "
            f"{names[1]} of shape {labels.shape}."
        )
    return inputs, labels.astype(numpy.int64)


def _classes(
    arrays: Mapping[str, numpy.ndarray], pairs: Mapping[str, Pair | None]
) -> tuple[str, ...]:
    if "classes" in arrays:
        return tuple(str(name) for name in arrays["classes"])
    most = max(int(pair[1].max()) for pair in pairs.values() if pair is not None)
    return tuple(str(label) for label in range(most + 1))


def _table(path: Path, label: str) -> tuple[polars.DataFrame, list[str]]:
    """Return the columns of numbers and the labels as text of a CSV file."""
    try:
        table = polars.read_csv(path, infer_schema_length=None)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise UserError(f"{path}: cannot be read as CSV: {str(error).splitlines()[0]}.") from None
    if label not in table.columns:
        hint = did_you_mean(label, table.columns)
        raise UserError(f"{path}: expected the column {label!r} of labels. {hint}")
    columns = table.drop(label)
    for column in columns.iter_columns():
        if not column.dtype.is_numeric() or column.null_count():
            raise UserError(
                f"{path}: expected a number in every row of column {column.name!r}: leave the "
                "column out, or encode and fill it beforehand."
            )
    return columns, table[label].cast(polars.String).to_list()


def _like(path: Path, tested: polars.DataFrame, trained: polars.DataFrame) -> polars.DataFrame:
    """Return the columns of a test file in the order that training has them."""
    if set(tested.columns) != set(trained.columns):
        raise UserError(
            f"{path}: expected the columns of training, {', '.join(trained.columns)}, got "
            f"{', '.join(tested.columns)}."
        )
    return tested.select(trained.columns)


def _numbered(
    path: Path, columns: polars.DataFrame, labels: list[str], classes: Sequence[str]
) -> Pair:
    """Return the numbers (N, K) and the number of each label, (N,)."""
    numbers = {name: number for number, name in enumerate(classes)}
    strange = [name for name in labels if name not in numbers]
    if strange:
        raise UserError(f"{path}: test has the label {strange[0]!r}, which training lacks.")
    inputs = columns.to_numpy().astype(numpy.float32)
    return inputs, numpy.array([numbers[name] for name in labels])
