"""Time warp: a signal runs too fast here and too slowly there."""

import math

import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts.crafted.warping import STRENGTHS
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

WAVES = 3  # sine waves whose sum is the warp; below strength 1 time never runs backwards


def time_warp_shift() -> Shift:
    return Shift("time_warp", STRENGTHS, time_warp, "time runs too fast here, too slowly there")


def time_warp(signals: Tensor, strength: float, noise: KeyedNoise) -> Tensor:
    """Return signals (N, time, channels) read at warped moments, both ends in place."""
    if signals.ndim != 3:
        raise UserError(
            "time_warp is made for signals (N, time, channels), got shape "
            f"{tuple(signals.shape)}: a table has no time."
        )
    moments = signals.shape[1]
    time = torch.linspace(0, 1, moments, device=signals.device)[None]  # (1, T)
    drawn = noise.uniform((WAVES,)).to(signals) * 2 - 1  # (N, WAVES)
    for wave in range(1, WAVES + 1):  # each bends the slope by at most strength / WAVES
        bend = drawn[:, wave - 1 : wave] * (math.pi * wave * time).sin() / (math.pi * wave * WAVES)
        time = time + strength * bend
    place = time.clamp(0, 1) * (moments - 1)  # (N, T)
    low = place.floor().long().clamp(max=max(moments - 2, 0))  # (N, T)
    share = (place - low)[:, :, None]  # (N, T, 1)
    index = low[:, :, None].expand_as(signals)
    following = (index + 1).clamp(max=moments - 1)
    return torch.lerp(signals.gather(1, index), signals.gather(1, following), share)
