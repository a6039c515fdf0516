"""Group offset: neighbouring channels, as of one sensor, are off by one common amount."""

import torch
from torch import Tensor

from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.sensor_faults import FAULT_DEVIATIONS, as_signals
from falconcal.shifts.shift import Shift

CHANNEL_GROUPS = 8


def group_offset_shift() -> Shift:
    return Shift(
        "group_offset",
        FAULT_DEVIATIONS,
        group_offset,
        "groups of channels off by one amount, up to 3",
    )


def group_offset(inputs: Tensor, deviation: float, noise: KeyedNoise) -> Tensor:
    """Return channels, in at most 8 groups of neighbours, plus one normal amount per group."""
    signals = as_signals(inputs)  # (N, T, F)
    channels = signals.shape[2]
    group = torch.arange(channels, device=inputs.device) * min(CHANNEL_GROUPS, channels) // channels
    amounts = noise.normal((1, min(CHANNEL_GROUPS, channels))).to(inputs)  # (N, 1, groups)
    return (signals + deviation * amounts[:, :, group]).reshape(inputs.shape)
