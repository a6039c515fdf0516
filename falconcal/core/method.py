"""What a method is: a frozen dataclass of settings with one verb, ``fit``."""

import dataclasses
from typing import Annotated, Any, Protocol, TypeVar, cast, runtime_checkable

from pydantic import AfterValidator
from torch import nn

from falconcal.core.batch import Batches


@runtime_checkable
class Method(Protocol):
    """Settings with a ``fit``, which returns a module: inputs in, logits out."""

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module: ...


@runtime_checkable
class BuildsModule(Method, Protocol):
    """A method that can build what its ``fit`` returns without training it.

    Stored weights are loaded into what ``build`` returns.
    """

    def build(self, model: nn.Module) -> nn.Module: ...


def build_untrained(method: Method | None, model: nn.Module) -> nn.Module:
    """Return what ``fit`` would return, not trained, for stored weights to be loaded into."""
    return method.build(model) if isinstance(method, BuildsModule) else model


def _no_class(value: object) -> object:
    if isinstance(value, type):
        raise ValueError(f"should be a method with its settings, such as {value.__name__}()")
    return value


# the method inside another one: what is calibrated, or what the members of an ensemble are
Base = Annotated[Method, AfterValidator(_no_class)]
MethodT = TypeVar("MethodT", bound=Method)


def innermost_method(method: Method) -> Method:
    """Return the method inside all others: the one that trains."""
    base = getattr(method, "base", None)
    return method if base is None else innermost_method(base)


def chooses_epoch(method: Method) -> bool:
    """Return whether the epoch that is kept is chosen by validation data."""
    trained = innermost_method(method)
    best = getattr(trained, "keep", "last") == "best"
    return best or getattr(trained, "patience", None) is not None


def with_seed(method: MethodT, seed: int) -> MethodT:
    """Return the method, and whatever it is based on, with another seed where it takes one."""
    values = cast("Any", method)
    changes = {"seed": seed} if hasattr(method, "seed") else {}
    base = getattr(method, "base", None)
    if base is not None:
        changes["base"] = with_seed(base, seed)
    return cast("MethodT", dataclasses.replace(values, **changes))
