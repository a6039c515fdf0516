"""Speckle: noise in proportion to the value, from slight to unreadable."""

from torch import Tensor

from falconcal.data import Bounds
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

SPECKLE_DEVIATIONS = tuple(2 * level / 9 for level in range(10))


def speckle_shift() -> Shift:
    return Shift(
        "speckle",
        SPECKLE_DEVIATIONS,
        speckle,
        "noise of 0.2 to 2 times the value",
        needs=("bounds",),
    )


def speckle(
    inputs: Tensor, deviation: float, noise: KeyedNoise, *, bounds: Bounds | None = None
) -> Tensor:
    """Return inputs (N, ...) with normal noise in proportion to each value above the lowest."""
    low = bounds.low if bounds is not None else 0.0
    changed = inputs + deviation * (inputs - low) * noise.normal(tuple(inputs.shape[1:])).to(inputs)
    return changed if bounds is None else bounds.clip(changed)
