"""What there is, a line on each: the tables as ``falconcal list`` shows them."""

import inspect
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from falconcal.data import DATASETS
from falconcal.methods import METHODS
from falconcal.metrics import METRICS, POOLED
from falconcal.models import MODELS
from falconcal.shifts import OUTLIERS, SHIFTS, STORED
from falconcal.studies import STUDIES


def summary_line(thing: Any) -> str:
    """Return the first line of what a thing says of itself."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _module_line(thing: Any) -> str:
    return summary_line(inspect.getmodule(thing))


CATALOGUE: dict[str, Callable[[], Mapping[str, str]]] = {
    "methods": lambda: {name: _module_line(method) for name, method in METHODS.items()},
    "studies": lambda: {name: tomllib.loads(text)["title"] for name, text in STUDIES.items()},
    "shifts": lambda: {
        **{name: shift.summary for name, shift in SHIFTS.items()},
        **{name: summary for name, (_, summary) in STORED.items()},
    },
    "outliers": lambda: {
        **{name: outliers.summary for name, outliers in OUTLIERS.items()},
        "DATASET": "the test part of any dataset of the same shape",
    },
    "metrics": lambda: {name: metric.summary for name, metric in {**METRICS, **POOLED}.items()},
    "datasets": lambda: {name: _module_line(load) for name, load in DATASETS.items()},
    "models": lambda: {name: summary_line(make) for name, make in MODELS.items()},
}
