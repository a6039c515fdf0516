"""Methods: one file each, and the table of them.

To add one, write ``methods/NAME.py`` in the order of its neighbours (docstring with citation and
equations, settings, ``objectives``, one function per objective, helpers) and add a line to
``METHODS``. Methods that calibrate what another method has trained are in ``recalibration/``.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any

from falconcal.core.method import Method
from falconcal.core.registry import look_up
from falconcal.core.settings import as_dict, renamed_settings, with_none
from falconcal.core.trust import PERSON, CodeKind, Trust, check_allowed
from falconcal.errors import UsageError
from falconcal.methods.adversarial import Adversarial
from falconcal.methods.augmix import AugMix
from falconcal.methods.ensemble import Ensemble
from falconcal.methods.entropy_smoothing import EntropySmoothing
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
from falconcal.methods.reg_mixup import RegMixup
from falconcal.methods.sngp import SNGP
from falconcal.methods.svi import SVI
from falconcal.recalibration import (
    DensityAware,
    EnsembleTemperature,
    HistogramBinning,
    Isotonic,
    OneCurveIsotonic,
    ParameterisedTemperature,
    ScalingBinning,
    ShiftTemperature,
    Temperature,
    VectorScaling,
)

METHODS: dict[str, Callable[..., Method]] = {
    "dropout": L2Dropout,
    "falcon": Falcon,
    "label_smoothing": LabelSmoothing,
    "entropy_smoothing": EntropySmoothing,
    "focal": Focal,
    "mixup": Mixup,
    "reg_mixup": RegMixup,
    "augmix": AugMix,
    "evidential": Evidential,
    "joint_gan": JointGAN,
    "adversarial": Adversarial,
    "mc_dropout": MCDropout,
    "ensemble": Ensemble,
    # an ensemble with another default; the wrapper lets it be inspected as the class
    "falcon_ensemble": update_wrapper(partial(Ensemble, base=Falcon()), Ensemble),
    "svi": SVI,
    "last_layer_svi": LastLayerSVI,
    "mnf": MNF,
    "sngp": SNGP,
    "temperature": Temperature,
    "ensemble_temperature": EnsembleTemperature,
    "parameterised_temperature": ParameterisedTemperature,
    "vector": VectorScaling,
    "isotonic": Isotonic,
    "one_curve_isotonic": OneCurveIsotonic,
    "histogram": HistogramBinning,
    "scaling_binning": ScalingBinning,
    "density_aware": DensityAware,
    "shift_temperature": ShiftTemperature,
}
"""Every method and calibrator by its name; adding an entry adds its tests, its row and its help."""

__all__ = [
    "METHODS",
    "MNF",
    "SNGP",
    "SVI",
    "Adversarial",
    "AugMix",
    "Ensemble",
    "EntropySmoothing",
    "Evidential",
    "Falcon",
    "Focal",
    "JointGAN",
    "L2Dropout",
    "LabelSmoothing",
    "LastLayerSVI",
    "MCDropout",
    "Mixup",
    "RegMixup",
    "make_method",
    "plain_settings",
]


def _is_method(thing: object) -> bool:
    made = isinstance(thing, type) and dataclasses.is_dataclass(thing)
    return made and callable(getattr(thing, "fit", None))


METHOD_KIND = CodeKind("method", "a dataclass of settings with a fit", _is_method)


def make_method(values: Mapping[str, Any], trust: Trust = PERSON) -> Method:
    """Return a method made of plain settings, as TOML and JSON hold them.

    Args:
        values: The settings, with the name of the method as ``method``; a ``base`` is such a table
            too. Old names of settings are read.
        trust: Whose code may be named, if the settings come from a file.

    Returns:
        The method.

    Raises:
        UsageError: If the name or a setting is unknown, or a value is not allowed.

    Example:
        >>> from falconcal.methods import make_method
        >>> make_method({"method": "focal", "gamma": 2.0}).gamma
        2.0
    """
    settings = dict(values)
    name = settings.pop("method", None)
    if not isinstance(name, str):
        raise UsageError(f'expected method = "NAME", such as "falcon", got {name!r}.')
    make = look_up(METHOD_KIND, name, METHODS, trust)
    settings = renamed_settings(_fields(make), settings)
    if isinstance(settings.get("base"), Mapping):
        settings["base"] = make_method(settings["base"], trust)
    _check_code(make, settings, trust)
    try:
        return make(**with_none(inspect.unwrap(make), settings))
    except TypeError as error:
        raise UsageError(
            f"method {name!r} does not take the settings {', '.join(settings)}: {error}."
        ) from None


def _fields(make: Callable[..., Method]) -> list[str]:
    return list(getattr(make, "__dataclass_fields__", ()))


def _check_code(make: Callable[..., Method], settings: Mapping[str, Any], trust: Trust) -> None:
    """Refuse settings that name code which is not trusted: it would be called by ``fit``."""
    for setting in getattr(make, "names_code", ()):
        if isinstance(name := settings.get(setting), str) and name != "none":
            check_allowed(setting, name, trust)


def plain_settings(method: Any) -> dict[str, Any]:
    """Return a method as plain data that JSON and TOML can hold.

    Args:
        method: The method.

    Returns:
        Its settings, with its name as ``method``; ``make_method`` reads them.

    Example:
        >>> from falconcal.methods import Focal, plain_settings
        >>> plain_settings(Focal(gamma=2.0))["gamma"]
        2.0
    """
    values = {"method": method_name(method), **as_dict(method)}
    if isinstance(getattr(method, "base", None), Method):
        values["base"] = plain_settings(method.base)
    return values


def method_name(method: Method) -> str:
    """Return the name in the table, or package.module:Name for a method from outside."""
    kind = type(method)
    names = (name for name, known in METHODS.items() if known is kind)
    return next(names, f"{kind.__module__}:{kind.__qualname__}")


def are_same_class(first: object, second: object) -> bool:
    """Return whether two names of the table stand for one class with other defaults."""
    found = [METHODS.get(name) for name in (first, second) if isinstance(name, str)]
    return len({inspect.unwrap(one) for one in found if one is not None}) == 1 and None not in found
