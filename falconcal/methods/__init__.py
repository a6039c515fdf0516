"""Methods: one file each, and the table of them.

Adding one: write ``methods/NAME.py`` in the order of its neighbours (docstring with citation,
settings, ``fit``, objectives, helpers) and add a line to ``METHODS``.
"""

from collections.abc import Callable

from falconcal.methods.dropout import L2Dropout
from falconcal.methods.falcon import Falcon
from falconcal.methods.method import Method
from falconcal.methods.own_loop import FalconStep

METHODS: dict[str, Callable[..., Method]] = {
    "dropout": L2Dropout,
    "falcon": Falcon,
}

__all__ = ["METHODS", "Falcon", "FalconStep", "L2Dropout", "Method"]
