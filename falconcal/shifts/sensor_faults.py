"""Faults of sensors: drift, offset, noise, missing and stuck channels, each at ten strengths.

For tables (N, channels) and signals (N, time, channels). Drift, offset and noise are in the data's
own units and made for channels scaled to deviation 1; the others state the share of channels.
"""

from dataclasses import replace

import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

FAULT_DEVIATIONS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
CHANNEL_SHARES = tuple(level / 10 for level in range(10))


def sensor_shifts() -> dict[str, Shift]:
    """Return five faults of sensors as shifts by name.

    Returns:
        The shifts; signals (N, time, channels) or tables (N, channels) in and out.

    Example:
        >>> import torch
        >>> from falconcal.shifts import sensor_shifts
        >>> missing = sensor_shifts()["missing_channels"]
        >>> missing.at(torch.ones(1, 10), 3).sum()
        tensor(7.)
    """
    shifts = (
        Shift(
            "sensor_drift",
            FAULT_DEVIATIONS,
            drift,
            "channels drift away over time, up to 3",
            kin=("sensor_offset", "group_offset"),
        ),
        Shift(
            "sensor_offset",
            FAULT_DEVIATIONS,
            offset,
            "channels too high or too low, up to 3",
            kin=("group_offset",),
        ),
        Shift("sensor_noise", FAULT_DEVIATIONS, sensor_noise, "noise of deviation 0.1 to 3"),
        Shift(
            "missing_channels",
            CHANNEL_SHARES,
            missing_channels,
            "0.1 to 0.9 of the channels read 0",
        ),
        Shift(
            "stuck_channels",
            CHANNEL_SHARES,
            stuck_channels,
            "0.1 to 0.9 of the channels keep one value",
            kin=("missing_channels",),
        ),
    )
    return {shift.name: shift for shift in shifts}


def drift(inputs: Tensor, furthest: float, noise: KeyedNoise) -> Tensor:
    """Return channels that drift, each to one side; a row of a table is one moment of the drift."""
    signals = as_signals(inputs)  # (N, T, F)
    moments, channels = signals.shape[1:]
    if inputs.ndim == 2:
        passed = noise.uniform((1, 1), stream=1)  # (N, 1, 1)
    else:
        passed = torch.linspace(0, 1, moments, device=inputs.device)[None, :, None]  # (1, T, 1)
    moved = signals + furthest * passed.to(inputs) * _sides(noise, channels).to(inputs)
    return moved.reshape(inputs.shape)


def offset(inputs: Tensor, distance: float, noise: KeyedNoise) -> Tensor:
    """Return channels that are too high or too low, all of an example by the same distance."""
    signals = as_signals(inputs)
    moved = signals + distance * _sides(noise, signals.shape[2]).to(inputs)
    return moved.reshape(inputs.shape)


def sensor_noise(inputs: Tensor, deviation: float, noise: KeyedNoise) -> Tensor:
    as_signals(inputs)
    return inputs + deviation * noise.normal(tuple(inputs.shape[1:])).to(inputs)


def missing_channels(inputs: Tensor, share: float, noise: KeyedNoise) -> Tensor:
    """Return inputs with a share of each example's channels at 0."""
    signals = as_signals(inputs)
    return signals.masked_fill(_hit(noise, signals.shape[2], share), 0).reshape(inputs.shape)


def stuck_channels(inputs: Tensor, share: float, noise: KeyedNoise) -> Tensor:
    """Return inputs with a share of each example's channels stuck.

    A signal keeps the value that it had at a random moment; a table, which has no time, shows one
    value per channel, the same in every row.
    """
    signals = as_signals(inputs)
    moments, channels = signals.shape[1:]
    if inputs.ndim == 2:
        everywhere = replace(noise, examples=noise.examples.new_zeros(1))
        held = everywhere.normal((1, channels), stream=2).to(inputs)  # (1, 1, F)
    else:
        since = (noise.uniform((1, channels), stream=3) * moments).long()  # (N, 1, F)
        now = torch.arange(moments, device=inputs.device)[None, :, None]
        held = signals.gather(1, torch.minimum(now, since))  # (N, T, F)
    return torch.where(_hit(noise, channels, share), held, signals).reshape(inputs.shape)


def _sides(noise: KeyedNoise, channels: int) -> Tensor:
    """Return -1 or 1 for each channel: (N, 1, F)."""
    return (noise.uniform((1, channels)) < 0.5).float() * 2 - 1


def _hit(noise: KeyedNoise, channels: int, share: float) -> Tensor:
    """Return which channels are hit, the share of them to a whole number: (N, 1, F)."""
    order = noise.uniform((1, channels)).argsort(stable=True).argsort()
    return order.lt(round(share * channels))


def as_signals(inputs: Tensor) -> Tensor:
    """Return tables (N, F) and signals (N, T, F) as signals; refuse what is neither."""
    if inputs.ndim not in (2, 3):
        raise UserError(
            "expected tables (N, channels) or signals (N, time, channels), got shape "
            f"{tuple(inputs.shape)}: sensor shifts are made for these only."
        )
    return inputs if inputs.ndim == 3 else inputs[:, None]
