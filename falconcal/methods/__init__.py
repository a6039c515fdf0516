"""Methods: one file each, and the table of them.

Adding one: write ``methods/NAME.py`` in the order of its neighbours (docstring with citation,
settings, ``fit``, objectives, helpers) and add a line to ``METHODS``. Those that calibrate what
another method has trained live in ``recalibration/``.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from falconcal.core.method import Method
from falconcal.core.registry import look_up
from falconcal.core.settings import as_dict, with_none
from falconcal.core.trust import PERSON, CodeKind, Trust, check_allowed
from falconcal.errors import UsageError
from falconcal.methods.adversarial import Adversarial
from falconcal.methods.ensemble import Ensemble, FalconEnsemble
from falconcal.methods.evidential import Evidential
from falconcal.methods.falcon import Falcon
from falconcal.methods.focal import Focal
from falconcal.methods.joint_gan import JointGAN
from falconcal.methods.l2_dropout import L2Dropout
from falconcal.methods.label_smoothing import LabelSmoothing
from falconcal.methods.last_layer_svi import LastLayerSVI
from falconcal.methods.mc_dropout import MCDropout
from falconcal.methods.mixup import Mixup
from falconcal.methods.mnf import MNF
from falconcal.methods.svi import SVI
from falconcal.recalibration import (
    HistogramBinning,
    Isotonic,
    ScalingBinning,
    ShiftTemperature,
    Temperature,
    VectorScaling,
)

METHODS: dict[str, Callable[..., Method]] = {
    "dropout": L2Dropout,
    "falcon": Falcon,
    "label_smoothing": LabelSmoothing,
    "focal": Focal,
    "mixup": Mixup,
    "evidential": Evidential,
    "joint_gan": JointGAN,
    "adversarial": Adversarial,
    "mc_dropout": MCDropout,
    "ensemble": Ensemble,
    "falcon_ensemble": FalconEnsemble,
    "svi": SVI,
    "last_layer_svi": LastLayerSVI,
    "mnf": MNF,
    "temperature": Temperature,
    "vector": VectorScaling,
    "isotonic": Isotonic,
    "histogram": HistogramBinning,
    "scaling_binning": ScalingBinning,
    "shift_temperature": ShiftTemperature,
}

__all__ = [
    "METHODS",
    "MNF",
    "SVI",
    "Adversarial",
    "Ensemble",
    "Evidential",
    "Falcon",
    "FalconEnsemble",
    "Focal",
    "JointGAN",
    "L2Dropout",
    "LabelSmoothing",
    "LastLayerSVI",
    "MCDropout",
    "Mixup",
    "make_method",
    "plain_settings",
]


def _is_method(thing: object) -> bool:
    made = isinstance(thing, type) and dataclasses.is_dataclass(thing)
    return made and callable(getattr(thing, "fit", None))


KIND = CodeKind("method", "a dataclass of settings with a fit", _is_method)


def make_method(values: Mapping[str, Any], trust: Trust = PERSON) -> Method:
    """Return a method of plain settings, its name among them as ``method``; so for a ``base``.

    ``trust`` is whose code may be named, where the settings come from a file.
    """
    settings = dict(values)
    name = settings.pop("method", None)
    if not isinstance(name, str):
        raise UsageError(f'expected method = "NAME", such as "falcon", got {name!r}.')
    make = look_up(KIND, name, METHODS, trust)
    if isinstance(settings.get("base"), Mapping):
        settings["base"] = make_method(settings["base"], trust)
    _check_code(make, settings, trust)
    try:
        return make(**with_none(make, settings))
    except TypeError as error:
        raise UsageError(
            f"method {name!r} does not take the settings {', '.join(settings)}: {error}."
        ) from None


def _check_code(kind: Callable[..., Method], settings: Mapping[str, Any], trust: Trust) -> None:
    """Refuse settings that name code which is not trusted: it would be called by ``fit``."""
    for setting in getattr(kind, "names_code", ()):
        if isinstance(name := settings.get(setting), str) and name != "none":
            check_allowed(setting, name, trust)


def plain_settings(method: Any) -> dict[str, Any]:
    """Return a method as plain data that JSON and TOML can hold; ``make_method`` reads it."""
    values = {"method": method_name(method), **as_dict(method)}
    if isinstance(getattr(method, "base", None), Method):
        values["base"] = plain_settings(method.base)
    return values


def method_name(method: Method) -> str:
    """Return the name in the table, or package.module:Name for a method from outside."""
    kind = type(method)
    names = (name for name, known in METHODS.items() if known is kind)
    return next(names, f"{kind.__module__}:{kind.__qualname__}")
