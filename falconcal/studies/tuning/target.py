"""Whose settings are tuned: a method's own, or those of the one that trains inside it.

An ensemble and a recalibrator are tuned through their member: its settings are searched, and it
alone is trained and judged in a trial.
"""

from dataclasses import dataclass
from typing import Any

from falconcal.core.method import Method, innermost_method
from falconcal.errors import unknown_name_error
from falconcal.methods import method_name
from falconcal.studies import Study


@dataclass(frozen=True)
class TuningTarget:
    """Where settings stand in a study: under a name, and so many bases deep."""

    name: str
    depth: int
    method: Method  # the one that trains, with the study's own settings

    def table(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what stands under the name: the settings, in tables ``base`` where deep.

        With them the epoch that is kept, since every trial keeps the best.
        """
        table = {**settings, "keep": "best"} if hasattr(self.method, "keep") else settings
        if self.depth > 0:
            table = {"method": method_name(self.method), **table}
        for _ in range(self.depth):
            table = {"base": table}
        return table


def find_target(study: Study, name: str) -> TuningTarget:
    """Return where the settings stand that a method of the study is tuned through."""
    if name not in study.methods:
        raise unknown_name_error(f"method of the study {study.name}", name, study.methods)
    values: Any = study.methods[name]
    method = study.method(name)
    depth = 0
    while (inner := getattr(method, "base", None)) is not None:
        base = values.get("base", {})
        if isinstance(base, str):
            return find_target(study, base)  # a method of the study by itself
        values, method, depth = base, inner, depth + 1
    return TuningTarget(name, depth, innermost_method(method))
