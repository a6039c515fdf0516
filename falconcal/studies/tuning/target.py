"""Which settings are tuned: a method's own, or those of the method that trains inside it.

An ensemble or a calibrator is tuned through its base: the settings of the base are searched, and a
trial trains and judges only the base. A calibrator whose table ``[search.NAME]`` has settings of
its own is tuned itself: its base is trained once, and every trial fits the calibrator anew.
"""

from dataclasses import dataclass
from typing import Any

from falconcal.core.method import Method, innermost_method
from falconcal.errors import unknown_name_error
from falconcal.methods import method_name, plain_settings
from falconcal.recalibration import Calibrator
from falconcal.studies import Study


@dataclass(frozen=True)
class TuningTarget:
    """The method that is tuned: under which name of the study, and how many bases deep."""

    name: str
    depth: int
    method: Method  # the one that is searched, with the study's own settings

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator that is tuned itself, if one is."""
        return self.method if isinstance(self.method, Calibrator) else None

    def table(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the table of the study that holds these settings, nested in ``base`` where deep.

        It also says which epoch is kept, because every trial keeps the best one.
        """
        table = {**settings, "keep": "best"} if hasattr(self.method, "keep") else settings
        if self.depth > 0:
            table = {"method": method_name(self.method), **table}
        for _ in range(self.depth):
            table = {"base": table}
        return table


def find_target(study: Study, name: str) -> TuningTarget:
    """Return what is tuned when a method of the study is: itself, or its base."""
    if name not in study.methods:
        raise unknown_name_error(f"method of the study {study.name}", name, study.methods)
    values: Any = study.methods[name]
    method = study.method(name)
    if isinstance(method, Calibrator) and _names_settings_of(method, study.search.get(name, {})):
        return TuningTarget(name, 0, method)
    depth = 0
    while (inner := getattr(method, "base", None)) is not None:
        base = values.get("base", {})
        if isinstance(base, str):
            return find_target(study, base)  # another method of the study
        values, method, depth = base, inner, depth + 1
    return TuningTarget(name, depth, innermost_method(method))


def _names_settings_of(method: Method, table: dict[str, Any]) -> bool:
    return bool(table) and set(table) <= set(plain_settings(method))
