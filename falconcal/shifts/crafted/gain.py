"""Gain: the channels of a table or signal read too large or too small, each by its own factor."""

from torch import Tensor

from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.sensor_faults import as_signals
from falconcal.shifts.shift import Shift

SPREADS = tuple(2 * level / 9 for level in range(10))


def gain_shift() -> Shift:
    return Shift("gain", SPREADS, gain, "channels multiplied by factors of spread up to e^2")


def gain(inputs: Tensor, spread: float, noise: KeyedNoise) -> Tensor:
    """Return channels times exp(spread * n), n standard normal per example and channel."""
    signals = as_signals(inputs)  # (N, T, F)
    factors = (spread * noise.normal((1, signals.shape[2])).to(inputs)).exp()  # (N, 1, F)
    return (signals * factors).reshape(inputs.shape)
