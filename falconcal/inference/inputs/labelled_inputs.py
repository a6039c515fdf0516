"""Labelled data for a model that is already trained: a folder, an NPZ or a CSV file.

A folder has one folder of images per class. An NPZ file has the arrays ``inputs`` and ``labels``,
or those of a dataset's part, as ``validation_inputs`` and ``validation_labels``. A CSV file has a
column of labels, and the others are the inputs. Everything is checked against what the model was
made for, and read as ``falconcal predict`` reads it.
"""

import math
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from falconcal.core.batch import Batches
from falconcal.data import Bounds, Examples
from falconcal.data.class_folders import list_files
from falconcal.errors import UserError, did_you_mean
from falconcal.inference.inputs.array_inputs import array_batch, check_array
from falconcal.inference.inputs.image_inputs import check_takes_images, read_input
from falconcal.inference.inputs.input_source import BATCH, row_batch
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.io.array_files import array_names, read_array
from falconcal.io.image_files import ENDINGS
from falconcal.io.table_files import csv_header, read_csv_columns, shown

LABEL_COLUMN = "label"
CLASSES_ARRAY = "classes"  # of an NPZ file, their names in the order of the labels


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Batches of (inputs, labels) that can be read again and again, and all labels."""

    batches: Batches
    labels: Tensor  # (N,)


def read_labelled(path: Path, metadata: ModelMetadata, part: str) -> LabelledData:
    """Return labelled data for a model; ``part`` is validation or train, as in a dataset's NPZ.

    Raises:
        UserError: The data has other classes or another shape than the model.
    """
    readers: dict[str, Callable[..., LabelledData]] = {".csv": _read_csv, ".npz": _read_npz}
    if path.is_dir():
        return _read_folder(path, metadata)
    if not path.exists():
        raise UserError(f"no such file or folder: {path}. Check the path.")
    if path.suffix.lower() not in readers:
        raise UserError(
            f"expected a folder of images by class, or a file that ends in {' or '.join(readers)}, "
            f"got {path.name!r}: convert it."
        )
    return readers[path.suffix.lower()](path, metadata, part)


class _FolderBatches:
    """Images of files, read batch by batch each time that they are iterated."""

    def __init__(self, files: Sequence[Path], labels: Tensor, metadata: ModelMetadata) -> None:
        self.files, self.labels, self.metadata = files, labels, metadata
        self.bounds, self.classes = metadata.bounds, metadata.classes

    def __len__(self) -> int:
        return -(-len(self.files) // BATCH)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self.files), BATCH):
            part = slice(start, start + BATCH)
            images = [read_input(file, self.metadata) for file in self.files[part]]
            yield torch.stack(images), self.labels[part]


def _read_folder(path: Path, metadata: ModelMetadata) -> LabelledData:
    check_takes_images(metadata)
    found = list_files(path, ENDINGS)
    labels = _numbered(path, [found.classes[number] for number in found.labels], metadata)
    return LabelledData(_FolderBatches(found.files, labels, metadata), labels)


def _read_npz(path: Path, metadata: ModelMetadata, part: str) -> LabelledData:
    names = labelled_arrays(path, part)
    inputs, labels = (read_array(path, name) for name in names)
    if labels.dtype.kind not in "iu" or labels.shape != inputs.shape[:1]:
        raise UserError(
            f"{path}: expected {names[1]} to be one whole number per row of {names[0]}, shape "
            f"{inputs.shape[:1]}, got {labels.dtype} of shape {labels.shape}."
        )
    check_array(path, metadata, inputs.shape, inputs.dtype)
    _check_any(path, labels)
    numbers = _class_numbers(path, labels, metadata)
    return _examples(array_batch(path, metadata, 0, inputs).inputs, numbers, metadata)


def _class_numbers(path: Path, labels: numpy.ndarray, metadata: ModelMetadata) -> Tensor:
    """Return the model's number of each label: by its name where the file names its classes."""
    if CLASSES_ARRAY not in array_names(path):
        _check_known(path, labels, len(metadata.classes))
        return torch.from_numpy(labels.astype(numpy.int64))
    names = [str(name) for name in read_array(path, CLASSES_ARRAY)]
    _check_known(path, labels, len(names), f"the array {CLASSES_ARRAY}")
    return _numbered(path, [names[label] for label in labels], metadata)


def labelled_arrays(path: Path, part: str) -> tuple[str, str]:
    """Return the names of the arrays of inputs and labels in an NPZ file."""
    there = array_names(path)
    for prefix in ("", f"{part}_"):
        names = f"{prefix}inputs", f"{prefix}labels"
        if set(names) <= set(there):
            return names
    raise UserError(
        f"{path}: expected the arrays inputs and labels, or {part}_inputs and {part}_labels, got "
        f"{', '.join(there) or 'none'}."
    )


def _check_any(path: Path, labels: Sized) -> None:
    if len(labels) == 0:
        raise UserError(f"{path}: expected labelled examples, got none: add some.")


def _check_known(
    path: Path, labels: numpy.ndarray, classes: int, of: str = "the classes of the model"
) -> None:
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        row = int(bad.argmax())
        raise UserError(
            f"{path}, row {row} (from 0): expected labels from 0 to {classes - 1}, {of}, got "
            f"{labels[row]}."
        )


def _read_csv(path: Path, metadata: ModelMetadata, part: str) -> LabelledData:  # noqa: ARG001
    header = csv_header(path)
    columns = list(metadata.columns or (name for name in header if name != LABEL_COLUMN))
    for name in (LABEL_COLUMN, *columns):
        if name not in header:
            raise UserError(f"{path}: no column {name!r}. {did_you_mean(name, header)}")
    wanted = math.prod(metadata.shape)
    if len(columns) != wanted:
        raise UserError(
            f"{path}: expected a column for each of the {wanted} inputs of the model besides "
            f"{LABEL_COLUMN!r}, got {len(columns)}: leave others out."
        )
    table = read_csv_columns(path, [LABEL_COLUMN, *columns])
    table.check_filled(table.frame[LABEL_COLUMN])
    labels = _numbered(path, table.frame[LABEL_COLUMN].to_list(), metadata)
    _check_any(path, labels)
    values = numpy.stack([table.numbers(table.frame[name]) for name in columns], 1)
    inputs = row_batch(path, metadata, 0, values.reshape(len(values), *metadata.shape)).inputs
    return _examples(inputs, labels, metadata)


def _numbered(path: Path, names: Sequence[str], metadata: ModelMetadata) -> Tensor:
    """Return the number of each class by its name; 1.0 is 1."""
    numbers = {name: number for number, name in enumerate(metadata.classes)}
    plain = [name.removesuffix(".0") if name not in numbers else name for name in names]
    strange = next((name for name in plain if name not in numbers), None)
    if strange is not None:
        raise UserError(
            f"{path}: the class {shown(strange)} is not one of the model's, which are "
            f"{', '.join(metadata.classes[:10])}{' ...' if len(metadata.classes) > 10 else ''}: "
            "rename it, or leave its examples out."
        )
    return torch.tensor([numbers[name] for name in plain])


def _examples(inputs: Tensor, labels: Tensor, metadata: ModelMetadata) -> LabelledData:
    bounds: Bounds | None = metadata.bounds
    examples = Examples(inputs, labels, bounds, metadata.classes, metadata.tokens)
    return LabelledData(examples.batches(BATCH), labels)


def check_enough(path: Path, data: LabelledData, metadata: ModelMetadata, fewest: int) -> None:
    """Refuse data in which a class of the model has too few examples."""
    counts = data.labels.bincount(minlength=len(metadata.classes)).tolist()
    count, name = min(zip(counts, metadata.classes, strict=True), key=lambda pair: pair[0])
    if count < fewest:
        raise UserError(
            f"{path}: expected at least {fewest} examples of each class, got {count} of {name!r}: "
            "add some, or lower --fewest if that class hardly ever occurs."
        )
