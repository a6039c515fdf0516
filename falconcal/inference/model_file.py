"""A model file: the weights, and what is needed to rebuild the model and to read its output.

It is a safetensors file with metadata as JSON in its header; nothing is ever pickled. What the
metadata are is in ``model_metadata.py``, how the model is made again in ``rebuilt_model.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from falconcal.core.method import Method
from falconcal.core.model_inputs import call_model, packed
from falconcal.core.module_state import check_module, without_wrapper
from falconcal.core.trust import PERSON, trusting
from falconcal.data import Bounds, Framing, Preparation
from falconcal.errors import UserError, described
from falconcal.inference.model_metadata import (
    ModelMetadata,
    check_metadata,
    metadata_head,
    read_metadata,
)
from falconcal.inference.rebuilt_model import check_outputs, rebuild_model
from falconcal.io.atomic import as_path
from falconcal.io.image_files import framing_of_shape, is_image_shape
from falconcal.io.output_folder import model_file
from falconcal.io.tensors import read_tensors, write_tensors
from falconcal.methods import plain_settings
from falconcal.metrics import risk_table
from falconcal.metrics.predictions import Data
from falconcal.recalibration.neighbours import stored_examples


class SavedModel(nn.Module):
    """A model that was read from a file, and its metadata; it can be used as the model itself.

    Args:
        model: The model, in inference mode on the CPU.
        metadata: What the file holds besides the weights.

    Example:
        >>> import falconcal, torch
        >>> model = falconcal.models.MLP(2, 3)
        >>> falconcal.save(model, "model.safetensors", "mlp", classes=("no", "yes"), shape=(3,))
        >>> saved = falconcal.load("model.safetensors")
        >>> saved.model(torch.zeros(1, 3)).shape, saved.metadata.shape
        (torch.Size([1, 2]), (3,))
    """

    def __init__(self, model: nn.Module, metadata: ModelMetadata) -> None:
        super().__init__()
        self.model, self.metadata = model, metadata
        self.training = model.training

    @property
    def bare_model(self) -> nn.Module:
        """The model itself, which methods wrap and train."""
        return self.model

    def forward(self, *inputs: Any, **named: Any) -> Tensor:  # (N, ...) -> (N, C)
        return call_model(self.model, packed(inputs, named))


def save(
    model: nn.Module,
    path: str | Path,
    architecture: str,
    *,
    classes: Sequence[str],
    shape: Sequence[int],
    arguments: Mapping[str, Any] | None = None,
    bounds: Bounds | None = None,
    preparation: Preparation | None = None,
    tokens: int | None = None,
    columns: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    deviation: Sequence[float] | None = None,
    framing: Framing | None = None,
    method: Method | None = None,
    validation: Data | None = None,
) -> None:
    """Write a model to a file, after a check that it can be rebuilt.

    The file appears whole or not at all. Nothing is pickled.

    Args:
        model: The model, with its weights.
        path: The file to write, ``.safetensors`` by custom.
        architecture: A name in ``MODELS``, which is sized to ``shape`` and ``classes``, or
            ``package.module:Name`` of your own class or function.
        classes: The names of the classes, in the order of the logits.
        shape: The shape of one example.
        arguments: What the architecture is called with: numbers, text, lists, tables.
        bounds: The range of the inputs.
        preparation: The first layer of the network, if the data asked for one.
        tokens: The number of different tokens, padding included, where inputs are tokens.
        columns: The columns of a table, in the order of the inputs.
        mean: What is subtracted from each channel of pixels from 0 to 1, where that is not a layer.
        deviation: What each channel is divided by after that.
        framing: How image files were framed in training, ``dataset.train.framing``, so that
            ``falconcal predict`` does the same; by default images are scaled to the model's size
            by their shorter side and the middle is cut out.
        method: The method that trained the model.
        validation: Predictions on data that did not train the model. Only a table of errors by
            confidence threshold is stored, which ``falconcal predict --risk`` reads.

    Raises:
        UserError: The model cannot be rebuilt from what is given, or its output does not fit the
            classes.
        UsageError: The architecture is not known, or arguments cannot be stored as JSON.

    Example:
        >>> import falconcal, torch
        >>> model = falconcal.models.MLP(2, 3)
        >>> falconcal.save(model, "model.safetensors", "mlp", classes=("no", "yes"), shape=(3,))
        >>> inputs = torch.ones(4, 3)
        >>> loaded = falconcal.load("model.safetensors").model
        >>> bool((loaded(inputs) == model(inputs)).all())
        True
    """
    check_module(model)
    model = without_wrapper(model)
    if method is not None and (isinstance(method, type) or not isinstance(method, Method)):
        raise UserError(f"expected the method that trained the model, got {described(method)}.")
    metadata = ModelMetadata(
        architecture=architecture,
        arguments=None if arguments is None else dict(arguments),
        classes=_listed("classes", classes),
        shape=_listed("shape", shape),
        bounds=bounds,
        preparation=preparation,
        tokens=tokens,
        columns=None if columns is None else _listed("columns", columns),
        mean=None if mean is None else _listed("mean", mean),
        deviation=None if deviation is None else _listed("deviation", deviation),
        framing=framing or _usual_framing(shape, tokens),
        method=None if method is None else plain_settings(method),
        risks=None if validation is None else risk_table(validation),
        training_examples=stored_examples(model),
    )
    check_metadata(metadata)
    _write(as_path(path), metadata, _weights(model))


def _write(path: Path, metadata: ModelMetadata, weights: dict[str, Tensor]) -> None:
    """Write the file once a model was rebuilt from what it will hold, and gives logits."""
    head = metadata_head(metadata)
    rebuilt = rebuild_model(ModelMetadata(**head["facts"]), weights, "the model", PERSON)
    check_outputs(rebuilt.float(), metadata)
    write_tensors(path, weights, head)


def _usual_framing(shape: Sequence[int], tokens: int | None) -> Framing | None:
    return framing_of_shape(shape) if is_image_shape(shape) and tokens is None else None


def load(path: str | Path, trust_code: Iterable[str] = ()) -> SavedModel:
    """Read and rebuild a model that ``save`` wrote; a file from strangers is safe to load.

    Args:
        path: The file, or the folder of a run.
        trust_code: Packages whose code the file may name for its architecture or its method. By
            default it may name only what falconcal has, and anything else is refused.

    Returns:
        The model, in inference mode on the CPU, and its metadata. ``predict``, ``evaluate`` and
        every calibrator take it as it is.

    Raises:
        UserError: The file was not written by ``save`` or is damaged.
        UsageError: The file names code of a package that is not trusted.

    Example:
        >>> import falconcal
        >>> model = falconcal.models.MLP(2, 3)
        >>> falconcal.save(model, "model.safetensors", "mlp", classes=("no", "yes"), shape=(3,))
        >>> falconcal.load("model.safetensors").metadata.classes
        ('no', 'yes')
    """
    path, trust = model_file(as_path(path)), trusting(trust_code)
    weights, head = read_tensors(path)
    metadata = read_metadata(path, head)
    return SavedModel(rebuild_model(metadata, weights, str(path), trust), metadata)


def _listed(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | type) or not isinstance(values, Iterable):
        raise UserError(f"expected {name} in a list, got {described(values)}.")
    return tuple(values)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    state = model.state_dict()
    for name, weight in state.items():
        if not isinstance(weight, Tensor):
            raise UserError(
                f"expected weights that are tensors, {name} is {type(weight).__name__}."
            )
    return state
