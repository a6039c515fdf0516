"""The methods of the table by kind: those that train, those that build on another, calibrators."""

import dataclasses
from typing import Any

from falconcal.core.method import Method
from falconcal.methods import METHODS, L2Dropout
from falconcal.recalibration import Calibrator


def settings_of(method: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(method)}


TRAINED = [name for name, method in METHODS.items() if "epochs" in settings_of(method)]
BASED = [name for name, method in METHODS.items() if "base" in settings_of(method)]
CALIBRATORS: dict[str, Any] = {
    name: method
    for name, method in METHODS.items()
    if isinstance(method, type) and issubclass(method, Calibrator)
}


def made(name: str, **settings: object) -> Method:
    """Return a method of the table; where it has a base, the settings are those of the base."""
    if name in BASED:
        kind: Any = type(getattr(METHODS[name](), "base", None) or L2Dropout())
        size = {"size": 2} if "size" in settings_of(METHODS[name]) else {}
        return METHODS[name](base=kind(**settings), **size)
    return METHODS[name](**settings)
