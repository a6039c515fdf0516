"""Fits of small networks that end after a few steps, where only bits and shapes are compared."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

STEPS = 10
FITTED_BY_STEPS = ("temperature_map", "parameterised_temperature")


@contextmanager
def short_fits() -> Iterator[None]:
    """Let shift temperature and parameterised temperature take ten steps instead of hundreds."""
    with pytest.MonkeyPatch.context() as patch:
        for module in FITTED_BY_STEPS:
            patch.setattr(f"falconcal.recalibration.{module}.NETWORK_ITERATIONS", STEPS)
        yield
