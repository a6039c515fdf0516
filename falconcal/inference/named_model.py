"""A model that a person names, ``package.module:make``, with weights and data that it fits.

Such a model says nothing of its classes and inputs. What a model file would say is put together
from the data and from what the person states, so that both kinds go the same way from there on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy
import torch
from torch import nn

from falconcal.core.module_state import explain_model_errors, inference_mode_of
from falconcal.core.registry import look_up
from falconcal.core.trust import Trust, check_takes
from falconcal.data import Bounds
from falconcal.data.class_folders import list_files
from falconcal.errors import UserError
from falconcal.inference.inputs.labelled_inputs import LABEL_COLUMN, labelled_arrays
from falconcal.inference.model_file import SavedModel
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.inference.rebuilt_model import ARCHITECTURE
from falconcal.io.array_files import array_names, declared_array, read_array
from falconcal.io.image_files import ENDINGS, framing_of_shape, is_image_shape
from falconcal.io.table_files import csv_header, read_csv_columns
from falconcal.models import MODELS
from falconcal.models.predict import check_logits
from falconcal.models.published_weights import load_published


@dataclass(frozen=True)
class Stated:
    """What the person says of the model: whatever neither it nor the data can say."""

    weights: Path | None = None
    classes: tuple[str, ...] | None = None  # in the order of the outputs
    shape: tuple[int, ...] | None = None  # of one example
    bounds: tuple[float, float] | None = None
    mean: tuple[float, ...] | None = None
    deviation: tuple[float, ...] | None = None


def open_named_model(name: str, data: Path, stated: Stated, trust: Trust) -> SavedModel:
    """Return a model by its name, and what the data and the person say of it.

    Raises:
        UsageError: The name is not trusted, or is no model.
        UserError: The weights do not fit, or the data and the model have other classes or shapes.
    """
    model = _made(name, trust)
    if stated.weights is not None:
        load_published(model, stated.weights)
    seen = _seen(data, stated)
    seen = replace(seen, classes=stated.classes or _all_classes(seen.classes, model, seen.shape))
    return SavedModel(model.eval(), _metadata(name, seen, stated))


def _made(name: str, trust: Trust) -> nn.Module:
    known: dict[str, type[nn.Module]] = {}  # networks of the table are sized to data: name your own
    if name in MODELS:
        raise UserError(
            f"the network {name!r} has no weights by itself: give the file of a saved model, or "
            "package.module:make of a function that makes yours."
        )
    make = look_up(ARCHITECTURE, name, known, trust)
    check_takes(f"model {name}", make)
    model = make()
    if not isinstance(model, nn.Module):
        raise UserError(f"expected {name} to make a torch.nn.Module, got {type(model).__name__}.")
    return model


@dataclass(frozen=True)
class _Seen:
    """What labelled data say of themselves."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]  # those that occur, or are named
    bounds: Bounds | None = None
    columns: tuple[str, ...] | None = None


def _seen(data: Path, stated: Stated) -> _Seen:
    if data.is_dir():
        if stated.shape is None:
            raise UserError(
                f"{data}: images can be framed to any size: state the model's, such as "
                "--shape 3,224,224."
            )
        return _Seen(stated.shape, list_files(data, ENDINGS).classes, Bounds(0.0, 1.0))
    if not data.exists():
        raise UserError(f"no such file or folder: {data}. Check the path.")
    return _seen_in_csv(data) if data.suffix.lower() == ".csv" else _seen_in_npz(data)


def _seen_in_csv(path: Path) -> _Seen:
    header = csv_header(path)
    if LABEL_COLUMN not in header:
        raise UserError(f"{path}: expected a column {LABEL_COLUMN!r}, got {', '.join(header)}.")
    labels = read_csv_columns(path, [LABEL_COLUMN]).frame[LABEL_COLUMN].unique().to_list()
    columns = tuple(name for name in header if name != LABEL_COLUMN)
    return _Seen((len(columns),), tuple(sorted(map(str, labels))), None, columns)


def _seen_in_npz(path: Path) -> _Seen:
    inputs, labels = labelled_arrays(path, "validation")
    declared = declared_array(path, inputs)
    found = tuple(str(label) for label in numpy.unique(read_array(path, labels)))
    if "classes" in array_names(path):
        found = tuple(str(name) for name in read_array(path, "classes"))
    shape = declared.shape[1:]
    if declared.dtype != numpy.uint8 or len(shape) not in (2, 3):
        return _Seen(shape, found)
    height, width, *channels = shape
    return _Seen((channels[0] if channels else 1, height, width), found, Bounds(0.0, 1.0))


def _all_classes(found: Sequence[str], model: nn.Module, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return a name for each output: numbers, or the names in the data if there are as many."""
    outputs = _outputs(model, shape)
    numbers = tuple(str(number) for number in range(outputs))
    if all(name.removesuffix(".0") in numbers for name in found):
        return numbers
    if len(found) != outputs:
        raise UserError(
            f"the model has {outputs} outputs, the data {len(found)} classes: name all of them in "
            "the order of the outputs, --classes a,b,c."
        )
    return tuple(found)


def _outputs(model: nn.Module, shape: tuple[int, ...]) -> int:
    example = torch.zeros(1, *shape)
    with inference_mode_of(model), torch.no_grad(), explain_model_errors(example):
        logits = model(example)
    check_logits(logits, 1, None)
    return int(logits.shape[1])


def _metadata(name: str, seen: _Seen, stated: Stated) -> ModelMetadata:
    bounds = Bounds(*stated.bounds) if stated.bounds is not None else seen.bounds
    normalised = stated.mean is not None
    return ModelMetadata(
        architecture=name,
        arguments={},
        classes=seen.classes,
        shape=seen.shape,
        bounds=None if normalised else bounds,
        columns=seen.columns,
        mean=stated.mean,
        deviation=stated.deviation,
        framing=framing_of_shape(seen.shape) if is_image_shape(seen.shape) else None,
    )
