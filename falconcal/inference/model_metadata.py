"""What a model file holds besides the weights: its record, how it is checked, and its JSON."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

import falconcal
from falconcal.core.settings import Count, StrTuple, as_dict, settings
from falconcal.data import Bounds, Framing, Preparation
from falconcal.errors import UsageError, UserError
from falconcal.metrics import RiskTable

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


def metadata_head(metadata: ModelMetadata) -> dict[str, Any]:
    """Return what is written at the head of the file; what JSON cannot hold is refused."""
    return {"kind": KIND, "format": FORMAT, "facts": _plain_json(metadata)}


def read_metadata(path: str | Path, head: Mapping[str, Any]) -> ModelMetadata:
    """Return the metadata that the head of a file holds, checked."""
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
        check_metadata(metadata)
    except (KeyError, TypeError, UserError) as error:
        raise UserError(f"cannot read the metadata of {path}, it looks damaged: {error}") from None
    return metadata


def check_metadata(metadata: ModelMetadata) -> None:
    """Refuse fields that contradict each other."""
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
