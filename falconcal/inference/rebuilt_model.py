"""A model made again from the metadata of its file and its weights.

The architecture is a name that is looked up: one of ``MODELS``, or ``package.module:Name`` of a
class or function that makes a module. A method that wraps the model it trains rebuilds the wrapping
with ``build``. No more memory is allocated than the weights of the file ask for.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.layout import to_model_device
from falconcal.core.method import Method
from falconcal.core.model_inputs import call_model
from falconcal.core.module_state import explain_model_errors
from falconcal.core.registry import look_up
from falconcal.core.settings import call_checked, check_settable
from falconcal.core.trust import CodeKind, Trust, returns
from falconcal.data import Dataset, Examples
from falconcal.data.dataset import Modality
from falconcal.errors import UsageError, UserError
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.io.tensors import check_state_matches
from falconcal.methods import make_method
from falconcal.models import MODELS, is_factory
from falconcal.models.predict import check_logits
from falconcal.models.prepared_model import with_preparation


def rebuild_model(
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


def check_outputs(model: nn.Module, metadata: ModelMetadata) -> None:
    """Refuse a model that does not give one logit per class for an example of the stated shape."""
    example = _stand_in(metadata).train.first(1).inputs
    with torch.random.fork_rng(devices=[]), torch.no_grad(), explain_model_errors(example):
        logits = call_model(model, to_model_device(model, example))
    check_logits(logits, 1, None)
    if logits.shape[1] != len(metadata.classes):
        raise UserError(
            f"expected the names of the {logits.shape[1]} classes that the model has outputs for, "
            f"got {len(metadata.classes)}: {', '.join(metadata.classes[:10])}."
        )
