"""A model file: the weights, and what is needed to rebuild the model and to read its output.

It is a safetensors file with metadata as JSON in its header; nothing is ever pickled. The
architecture is a name that is looked up when the file is read: one of ``MODELS``, or
``package.module:Name`` of a class or function that makes a module. A method that wraps the model it
trains rebuilds the wrapping with ``build``.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

import falconcal
from falconcal.core.method import Method
from falconcal.core.module_state import check_module, explain_model_errors, to_model_device
from falconcal.core.registry import look_up
from falconcal.core.settings import (
    Count,
    StrTuple,
    as_dict,
    call_checked,
    check_settable,
    settings,
)
from falconcal.core.trust import PERSON, CodeKind, Trust, returns, trusting
from falconcal.data import Bounds, Dataset, Examples, Framing, Preparation
from falconcal.data.dataset import Modality
from falconcal.errors import UsageError, UserError, described
from falconcal.io.atomic import as_path
from falconcal.io.image_files import framing_of_shape, is_image_shape
from falconcal.io.tensors import check_state_matches, read_tensors, write_tensors
from falconcal.methods import make_method, plain_settings
from falconcal.metrics import RiskTable, risk_table
from falconcal.metrics.predictions import Data
from falconcal.models import MODELS, is_factory
from falconcal.models.predict import check_logits
from falconcal.models.prepared_model import with_preparation
from falconcal.recalibration.neighbours import stored_examples

KIND, FORMAT = "model", 2  # 2 states how images are framed; files of 1 are read too
LARGEST_EXAMPLE = 2**25  # numbers of one example: a colour image of 3,300 x 3,300 pixels

Numbers = Annotated[tuple[float, ...], Field(strict=False)]
NonNegativeCount = Annotated[int, Field(ge=0)]


def _from_table(kind: Callable[..., object]) -> BeforeValidator:
    """Read a record from JSON, where it is a table."""
    return BeforeValidator(lambda value: kind(**value) if isinstance(value, dict) else value)


@settings
class ModelMetadata:
    """What a model file holds besides the weights.

    Example:
        >>> from falconcal.inference import ModelMetadata
        >>> metadata = ModelMetadata(architecture="mlp", classes=("no", "yes"), shape=(3,))
        >>> metadata.classes
        ('no', 'yes')
    """

    architecture: str
    """A name in ``MODELS``, or ``package.module:Name``."""

    arguments: dict[str, Any] | None = None
    """What the architecture is called with; None sizes it to the shape and the classes."""

    classes: Annotated[StrTuple, Field(min_length=2)]
    """The names of the classes, in the order of the logits."""

    shape: Annotated[tuple[Count, ...], Field(strict=False)]
    """The shape of one example."""

    bounds: Annotated[Bounds | None, _from_table(Bounds)] = None
    """The range of the inputs, if they have one."""

    preparation: Annotated[Preparation | None, _from_table(Preparation)] = None
    """The first layer of the network, if the data asked for one."""

    tokens: Count | None = None
    """The number of different tokens, padding included, where inputs are tokens."""

    columns: StrTuple | None = None
    """The columns of a table, in the order of the inputs."""

    mean: Numbers | None = None
    """What is subtracted from each channel of pixels from 0 to 1, where that is not a layer."""

    deviation: Numbers | None = None
    """What each channel is divided by after that."""

    framing: Annotated[Framing | None, _from_table(Framing)] = None
    """How image files become inputs; None for other inputs, and in files of format 1."""

    method: dict[str, Any] | None = None
    """The settings of the method that trained the model, its name among them as ``method``."""

    risks: Annotated[RiskTable | None, _from_table(RiskTable)] = None
    """Errors on validation data by confidence threshold, for ``falconcal predict --risk``."""

    training_examples: NonNegativeCount = 0
    """Number of training examples whose features the file holds, as shift temperature keeps them;
    a file that holds some is as private as the data."""

    version: str = falconcal.__version__
    """The version of falconcal that wrote the file."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A model that was read from a file, and its metadata.

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

    model: nn.Module
    metadata: ModelMetadata


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
    _check_metadata(metadata)
    plain = _plain_json(metadata)
    weights = _weights(model)
    rebuilt = _rebuilt(ModelMetadata(**plain), weights, "the model", PERSON)
    _check_outputs(rebuilt.float(), metadata)
    write_tensors(as_path(path), weights, {"kind": KIND, "format": FORMAT, "facts": plain})


def _usual_framing(shape: Sequence[int], tokens: int | None) -> Framing | None:
    return framing_of_shape(shape) if is_image_shape(shape) and tokens is None else None


def load(path: str | Path, trust_code: Iterable[str] = ()) -> SavedModel:
    """Read and rebuild a model that ``save`` wrote; a file from strangers is safe to load.

    Args:
        path: The file.
        trust_code: Packages whose code the file may name for its architecture or its method. By
            default it may name only what falconcal has, and anything else is refused.

    Returns:
        The model, in inference mode on the CPU, and its metadata.

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
    path, trust = as_path(path), trusting(trust_code)
    weights, head = read_tensors(path)
    metadata = _metadata(path, head)
    return SavedModel(_rebuilt(metadata, weights, str(path), trust), metadata)


def _rebuilt(
    metadata: ModelMetadata, weights: Mapping[str, Tensor], source: str, trust: Trust
) -> nn.Module:
    """Return the architecture inside what its method wraps it with, and the weights in it."""
    method = make_method(metadata.method, trust) if metadata.method else None
    _check_members(method, len(weights), source)
    room = sum(weight.numel() for weight in weights.values())
    model = _structured(_architecture(metadata, trust, room), method)
    check_state_matches(
        model.state_dict(),
        weights,
        f"the weights of {source} do not fit the architecture {metadata.architecture}",
        "Do its name, its arguments and the method say what was trained?",
    )
    for name, weight in model.state_dict(keep_vars=True).items():
        weight.data = weight.data.to(weights[name].dtype)  # half precision stays half
    model.load_state_dict(dict(weights))
    return model.eval()


def _architecture(metadata: ModelMetadata, trust: Trust, room: int) -> nn.Module:
    name, arguments = metadata.architecture, metadata.arguments or {}
    make: Callable[..., Any] = look_up(ARCHITECTURE, name, MODELS, trust)
    sized = name in MODELS or metadata.arguments is None
    with torch.random.fork_rng(devices=[]), _explained(name, metadata.arguments):
        given = [_stand_in(metadata)] if sized else []
        if name in MODELS:
            check_settable(f"architecture {name}", make, arguments)
            make = partial(call_checked, f"architecture {name}", make)
            _check_room(partial(make, *given, **arguments), room, name)
        model = make(*given, **arguments)
    if not isinstance(model, nn.Module):
        raise UserError(f"expected {name} to make a torch.nn.Module, got {type(model).__name__}.")
    return with_preparation(model, metadata.preparation)


def _check_room(make: Callable[[], nn.Module], room: int, name: str) -> None:
    """Refuse a network with more weights than the file has, before memory is allocated."""
    with torch.device("meta"):
        size = sum(weight.numel() for weight in make().state_dict().values())
    if size > room:
        raise UserError(
            f"the weights do not fit the architecture {name}: it has {size:,} numbers, the file "
            f"{room:,}. Do its name, its arguments and the shape say what was trained?"
        )


def _check_members(method: Method | None, tensors: int, source: str) -> None:
    """Refuse an ensemble of more members than there are tensors."""
    members = 1
    while method is not None:
        members *= int(getattr(method, "size", 1))
        method = getattr(method, "base", None)
    if members > max(tensors, 1):
        raise UserError(
            f"the weights of {source} do not fit its method, which has {members:,} members: there "
            f"are {tensors:,} tensors."
        )


def _structured(model: nn.Module, method: Method | None) -> nn.Module:
    """Return what the method's ``fit`` would return around the model, not trained."""
    build = getattr(method, "build", None)
    wrapped: nn.Module = model if build is None else build(model)
    return wrapped


def _makes_module(thing: object) -> bool:
    """Return whether a thing states, before it is called, that it makes a module."""
    made = thing if isinstance(thing, type) else returns(thing)
    return is_factory(thing) and isinstance(made, type) and issubclass(made, nn.Module)


ARCHITECTURE = CodeKind(
    "architecture",
    "a class of torch.nn.Module, or a function annotated to return one",
    _makes_module,
)


@contextmanager
def _explained(name: str, arguments: Mapping[str, Any] | None) -> Iterator[None]:
    """Turn the errors of a function that makes a model into our own."""
    try:
        yield
    except UsageError as error:
        raise UserError(str(error)) from None  # the file is wrong, not the command
    except UserError:
        raise
    except Exception as error:
        given = "the shape of the data" if arguments is None else f"the arguments {arguments}"
        raise UserError(
            f"cannot make {name} with {given}: {type(error).__name__}: {error}. Was the code "
            "changed since the model was saved?"
        ) from None


def _stand_in(metadata: ModelMetadata) -> Dataset:
    """Return one example of the shape of the data, for architectures that are sized to data."""
    inputs = torch.zeros(1, *metadata.shape)
    if metadata.tokens is not None:
        inputs = torch.full((1, *metadata.shape), metadata.tokens - 1)
    elif metadata.bounds is not None:
        inputs += metadata.bounds.low
    example = Examples(inputs, torch.zeros(1, dtype=torch.long), metadata.bounds, metadata.classes)
    modality: Modality = (
        "text" if metadata.tokens else "image" if len(metadata.shape) == 3 else "signal"
    )
    parts = (example, example, example)
    return Dataset(
        "saved",
        modality,
        metadata.classes,
        metadata.bounds,
        *parts,
        preparation=metadata.preparation,
    )


def _check_outputs(model: nn.Module, metadata: ModelMetadata) -> None:
    """Refuse a model that does not give one logit per class for an example of the stated shape."""
    example = _stand_in(metadata).train.first(1).inputs
    with torch.random.fork_rng(devices=[]), torch.no_grad(), explain_model_errors(example):
        logits = model(to_model_device(model, example))
    check_logits(logits, 1, None)
    if logits.shape[1] != len(metadata.classes):
        raise UserError(
            f"expected the names of the {logits.shape[1]} classes that the model has outputs for, "
            f"got {len(metadata.classes)}: {', '.join(metadata.classes[:10])}."
        )


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


def _metadata(path: Path, head: Mapping[str, Any]) -> ModelMetadata:
    if head.get("kind") != KIND:
        raise UserError(f"{path} is not a model file: expected one that falconcal.save wrote.")
    written = head.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise UserError(
            f"{path} has format {written}, this falconcal {falconcal.__version__} reads up to "
            f"{FORMAT}: install a newer falconcal."
        )
    try:
        metadata = ModelMetadata(**head["facts"])
        _check_metadata(metadata)
    except (KeyError, TypeError, UserError) as error:
        raise UserError(f"cannot read the metadata of {path}, it looks damaged: {error}") from None
    return metadata


def _check_metadata(metadata: ModelMetadata) -> None:
    if len(set(metadata.classes)) < len(metadata.classes):
        raise UserError(f"expected a different name for each class, got {metadata.classes}.")
    elements = math.prod(metadata.shape)
    if elements > LARGEST_EXAMPLE:
        raise UserError(
            f"expected examples of at most {LARGEST_EXAMPLE:,} numbers, got {metadata.shape}."
        )
    if metadata.columns is not None and len(metadata.columns) != elements:
        raise UserError(
            f"expected a column for each of the {elements} inputs, got {len(metadata.columns)}."
        )
    if metadata.framing is not None and metadata.framing.shape != metadata.shape:
        raise UserError(
            f"expected a framing to the shape of an example, {metadata.shape}, got one to "
            f"{metadata.framing.shape}."
        )
    _check_normalisation(metadata)
    _check_risks(metadata.risks)


def _check_normalisation(metadata: ModelMetadata) -> None:
    if metadata.mean is None and metadata.deviation is None:
        return
    lengths = [len(numbers) for numbers in (metadata.mean or (), metadata.deviation or ())]
    if lengths != [metadata.shape[0]] * 2 or min(metadata.deviation or (0,)) <= 0:
        raise UserError(
            f"expected mean and deviation, both with {metadata.shape[0]} numbers, one per channel, "
            f"the deviations above 0, got {metadata.mean} and {metadata.deviation}."
        )


def _check_risks(risks: RiskTable | None) -> None:
    if risks is None:
        return
    alike = len(risks.thresholds) == len(risks.accepted) == len(risks.errors)
    pairs = zip(risks.errors, risks.accepted, strict=False)
    if not alike or not all(0 <= wrong <= count for wrong, count in pairs):
        raise UserError(
            "expected as many thresholds as counts, and no more errors than accepted examples."
        )


def _plain_json(metadata: ModelMetadata) -> dict[str, Any]:
    """Return the metadata as JSON gives it back; what JSON cannot hold is refused."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(as_dict(metadata)))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"expected arguments and settings that JSON can hold: numbers, text, lists, tables; "
            f"{error}."
        ) from None
    return plain
