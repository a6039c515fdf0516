"""Your own numbers: an NPZ file of arrays, or a CSV file of one row per example.

Both may have their own validation and test parts; for one that is missing, a seeded share of every
class is held out of training. Numbers are taken as they are: scale them beforehand.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy
import polars
import torch
from pydantic import Field

from falconcal.core.settings import settings
from falconcal.data.bounds import Bounds
from falconcal.data.class_folders import HeldOut, held_out_of
from falconcal.data.dataset import Dataset, Modality
from falconcal.data.images import as_images
from falconcal.data.locations import search_folders
from falconcal.data.part import Examples, Part
from falconcal.errors import UserError, did_you_mean
from falconcal.io.array_files import array_names, read_array
from falconcal.io.table_files import TableFile, csv_header, read_csv_columns, shown

ARRAY_PARTS = ("train", "validation", "test")
ArrayPair = tuple[numpy.ndarray, numpy.ndarray]  # inputs (N, ...) and labels (N,)
MOST_TOKENS = 10_000_000  # a network has a row of weights for each
LARGEST_WHOLE = 2**53  # above it, a float cannot hold every whole number
ValueRange = Annotated[tuple[float, float], Field(strict=False)]


@settings
class Npz:
    """An NPZ file of train_inputs, train_labels, and so for validation and test.

    Inputs are bytes of images (N, H, W) or (N, H, W, channels), other whole numbers as tokens, or
    floats of any shape. An array ``classes`` may name the classes.
    """

    path: str
    """The file."""

    bounds: ValueRange | None = None
    """The range of floats, lowest and highest; images of bytes have 0 to 1."""

    test: str | None = None
    """A second file, for the test part: its test_inputs and test_labels."""

    held_out: HeldOut = 0.1
    """The share of training examples that is held out for each part that is missing."""

    def load(self) -> Dataset:
        (path,) = search_folders((), self.path)
        names = array_names(path)
        pairs = {part: _pair(path, names, part) for part in ARRAY_PARTS}
        if self.test is not None:
            (file,) = search_folders((), self.test)
            pairs["test"] = _pair(file, array_names(file), "test", required=True)
        _check_alike(path, pairs)
        classes = _classes(path, names, pairs)
        whole = with_all_parts(pairs, classes, self.held_out)
        bounds = None if self.bounds is None else Bounds(*self.bounds)
        return _dataset("npz", path, whole, classes, bounds)


@settings
class Csv:
    """A CSV file with a column of labels; all the others are numbers.

    Labels are names of classes, or their numbers: whole, and not below 0.
    """

    path: str
    """The file."""

    label: str = "label"
    """The column of the labels."""

    test: str | None = None
    """A second file, for the test part."""

    held_out: HeldOut = 0.1
    """The share of training examples that is held out for each part that is missing."""

    def load(self) -> Dataset:
        (path,) = search_folders((), self.path)
        table = _table(path, self.label)
        labels = _label_names(table, self.label)
        classes = _sorted_classes(table, labels)
        pairs = {"train": _numbered(table, self.label, labels, classes)}
        if self.test is not None:
            (file,) = search_folders((), self.test)
            tested = _like(_table(file, self.label), table)
            labels = _label_names(tested, self.label)
            pairs["test"] = _numbered(tested, self.label, labels, classes)
        return _dataset("csv", path, with_all_parts(pairs, classes, self.held_out), classes, None)


def with_all_parts(
    pairs: Mapping[str, ArrayPair | None], classes: Sequence[str], share: float
) -> dict[str, ArrayPair]:
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
    pairs: Mapping[str, ArrayPair],
    classes: tuple[str, ...],
    bounds: Bounds | None,
) -> Dataset:
    tokens = _token_count(path, pairs)
    train, validation, test = (
        _part(path, *pairs[part], classes, bounds, tokens) for part in ARRAY_PARTS
    )
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


def _token_count(path: Path, pairs: Mapping[str, ArrayPair]) -> int | None:
    inputs = pairs["train"][0]
    if inputs.dtype.kind not in "iu" or inputs.dtype == numpy.uint8:
        return None
    low, high = (int(end(pair[0] for pair in pairs.values())) for end in (_lowest, _highest))
    if low < 0 or high >= MOST_TOKENS:
        raise UserError(
            f"{path}: expected tokens, whole numbers from 0 to {MOST_TOKENS - 1:,}, got {low} to "
            f"{high}: number the words from 0, or save other numbers as floats."
        )
    return high + 1


def _lowest(arrays: Iterable[numpy.ndarray]) -> int:
    return min(int(array.min()) for array in arrays)


def _highest(arrays: Iterable[numpy.ndarray]) -> int:
    return max(int(array.max()) for array in arrays)


def _pair(
    path: Path, there: Sequence[str], part: str, *, required: bool = False
) -> ArrayPair | None:
    """Return the inputs and the labels of a part, checked one by one; None if it has neither."""
    names = [f"{part}_inputs", f"{part}_labels"]
    missing = [name for name in names if name not in there]
    if part != "train" and len(missing) == 2 and not required:
        return None
    if missing:
        hint = did_you_mean(missing[0], there)
        raise UserError(f"{path}: expected the array {missing[0]}, it is not there. {hint}")
    inputs, labels = (read_array(path, name) for name in names)
    if inputs.dtype.kind not in "fiu" or labels.dtype.kind not in "iu":
        raise UserError(
            f"{path}: expected {names[0]} to be numbers and {names[1]} whole numbers, got "
            f"{inputs.dtype} and {labels.dtype}."
        )
    _check_shapes(path, part, inputs, labels)
    _check_known(path, part, labels)
    return inputs, labels.astype(numpy.int64)  # (N, ...), (N,)


def _check_shapes(path: Path, part: str, inputs: numpy.ndarray, labels: numpy.ndarray) -> None:
    if inputs.ndim < 2:
        raise UserError(
            f"{path}: expected {part}_inputs with one row per example, shape (N, ...), got shape "
            f"{inputs.shape}: for one number per example save inputs.reshape(-1, 1)."
        )
    if inputs.size == 0:
        raise UserError(
            f"{path}: expected {part}_inputs with at least one example and one number, got shape "
            f"{inputs.shape}."
        )
    if labels.shape != inputs.shape[:1]:
        raise UserError(
            f"{path}: expected one label per example, got {part}_inputs of shape {inputs.shape} "
            f"and {part}_labels of shape {labels.shape}."
        )


def _check_known(path: Path, part: str, labels: numpy.ndarray) -> None:
    """Refuse labels that cannot be numbers of classes."""
    bad = labels.astype(numpy.int64) < 0  # the largest unsigned ones too
    if bad.any():
        row = int(bad.argmax())
        raise UserError(
            f"{path}: expected {part}_labels from 0 on, got {labels[row]} in row {row} (from 0): "
            "-1 marks an example of no known class, which is neither right nor wrong: leave such "
            "rows out."
        )


def _check_alike(path: Path, pairs: Mapping[str, ArrayPair | None]) -> None:
    """Refuse parts whose inputs are not of one kind and shape."""
    train = pairs["train"]
    assert train is not None
    for part, pair in pairs.items():
        if pair is not None and _kind(pair[0]) != _kind(train[0]):
            raise UserError(
                f"{path}: expected {part}_inputs like train_inputs, {train[0].dtype} (N, "
                f"{_axes(train[0])}), got {pair[0].dtype} (N, {_axes(pair[0])})."
            )


def _kind(inputs: numpy.ndarray) -> tuple[str, tuple[int, ...]]:
    """Return what inputs are taken for, pixels, tokens or numbers, and the shape of an example."""
    whole = "pixels" if inputs.dtype == numpy.uint8 else "tokens"
    return "numbers" if inputs.dtype.kind == "f" else whole, inputs.shape[1:]


def _axes(inputs: numpy.ndarray) -> str:
    return ", ".join(str(length) for length in inputs.shape[1:])


def _classes(
    path: Path, there: Sequence[str], pairs: Mapping[str, ArrayPair | None]
) -> tuple[str, ...]:
    """Return the names of the classes; without any they are the numbers up to the highest label."""
    given = [pair for pair in pairs.values() if pair is not None]
    most = _highest(labels for _, labels in given)
    if "classes" in there:
        names = _class_names(path)
        if most < len(names):
            return names
        raise UserError(
            f"{path}: expected labels from 0 to {len(names) - 1}, the array 'classes' has "
            f"{len(names)} names, got {most}."
        )
    examples = sum(len(labels) for _, labels in given)
    if not 1 <= most < examples:
        raise UserError(
            f"{path}: expected labels from 0 to C - 1 for C classes, at least 2 and each with "
            f"examples, got a highest label of {most} in {examples:,} examples: number the classes "
            "from 0, or name all of them in an array 'classes'."
        )
    return tuple(str(label) for label in range(most + 1))


def _class_names(path: Path) -> tuple[str, ...]:
    names = read_array(path, "classes")
    if names.ndim != 1 or len(names) < 2 or names.dtype.kind not in "iuU":
        raise UserError(
            f"{path}, array 'classes': expected at least 2 names, text of shape (C,), got "
            f"{names.dtype} of shape {names.shape}."
        )
    try:
        texts = tuple(str(name) for name in names)
    except ValueError as error:  # a number that is not a character
        raise UserError(f"{path}, array 'classes': expected text: {error}.") from None
    name, times = Counter(texts).most_common(1)[0]
    if times > 1:
        raise UserError(
            f"{path}, array 'classes': expected {len(texts)} different names, got {name!r} {times} "
            "times."
        )
    return texts


def _table(path: Path, label: str) -> TableFile:
    """Return all columns of a CSV file as text."""
    header = csv_header(path)
    if label not in header:
        hint = did_you_mean(label, header)
        raise UserError(f"{path}: expected the column {label!r} of labels. {hint}")
    if len(header) == 1:
        raise UserError(
            f"{path}: expected columns of numbers besides {label!r}, got none: add the inputs."
        )
    table = read_csv_columns(path, header)
    if len(table.frame) == 0:
        raise UserError(f"{path}: expected at least one example, got a header and no rows.")
    return table


def _label_names(table: TableFile, label: str) -> list[str]:
    """Return the labels as names: text, or whole numbers, never below 0."""
    column = table.frame[label]
    table.check_filled(column)
    numbers = column.cast(polars.Float64, strict=False)
    if numbers.null_count():
        return column.to_list()
    bad = ~((numbers >= 0) & (numbers <= LARGEST_WHOLE) & (numbers == numbers.round()))
    if bad.any():
        row = int(bad.arg_true()[0])
        raise table.problem(
            f"expected names of classes, or whole numbers from 0 on, got {shown(column[row])}: a "
            "number that is measured is not a class, and -1 marks an example of no known class. "
            "Leave such rows out, or give the classes names.",
            row,
            label,
        )
    both = zip(column, numbers, strict=True)
    return [text if text.isdigit() else f"{number:.0f}" for text, number in both]  # 1.0 is 1


def _sorted_classes(table: TableFile, labels: list[str]) -> tuple[str, ...]:
    found = set(labels)
    numbers = all(name.isdigit() for name in found)
    classes = tuple(sorted(found, key=lambda name: (int(name) if numbers else 0, name)))
    if len(classes) < 2:
        raise UserError(f"{table.path}: expected at least 2 classes, got only {classes[0]!r}.")
    return classes


def _like(tested: TableFile, trained: TableFile) -> TableFile:
    """Return the columns of a test file in the order that training has them."""
    given, wanted = tested.frame.columns, trained.frame.columns
    if set(given) != set(wanted):
        raise UserError(
            f"{tested.path}: expected the columns of training, {', '.join(wanted)}, got "
            f"{', '.join(given)}."
        )
    return replace(tested, frame=tested.frame.select(wanted))


def _numbered(table: TableFile, label: str, labels: list[str], classes: Sequence[str]) -> ArrayPair:
    """Return the numbers (N, K) and the number of each label, (N,)."""
    numbers = {name: number for number, name in enumerate(classes)}
    strange = [name for name in labels if name not in numbers]
    if strange:
        raise UserError(
            f"{table.path}: test has the label {shown(strange[0])}, which training does not have."
        )
    columns = [table.numbers(column) for column in table.frame.drop(label).iter_columns()]
    return numpy.stack(columns, 1), numpy.array([numbers[name] for name in labels])
