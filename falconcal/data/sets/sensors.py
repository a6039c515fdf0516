"""Vibration of 70 machines with healthy and worn bearings, made by a physical model, seeded.

A worn spot is struck each time a ball passes it: impulses at the bearing's fault frequencies, a
little irregular by slip, make the housing ring (a damped resonance) and are modulated by what turns
through the load zone (McFadden & Smith, J. Sound and Vibration 96, 1984; Randall & Antoni, Mech.
Systems and Signal Processing 25, 2011). Shaft harmonics and noise lie over them. Machines differ in
speed, load, resonance, mounting and noise, and each is in only one part of the data.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from falconcal.core.settings import Count, Seed, settings
from falconcal.data.dataset import Dataset
from falconcal.data.part import Examples

RATE = 10_240.0  # samples per second
LENGTH = 1024  # samples of a window, a tenth of a second
LEAD = 256  # samples before the window whose impulses still ring in it
SENSORS = 4  # vertical, horizontal, axial, and vertical at the far end
FAULT_CLASSES = ("healthy", "outer", "inner", "ball")
MACHINES = (40, 10, 20)  # for training, validation and test
SLIP = 0.01  # deviation of the time between two impulses, of that time


@dataclass(frozen=True)
class Bearing:
    """Geometry, in millimetres that of the common deep-groove bearing 6205."""

    balls: int = 9
    diameter: float = 7.94  # of a ball
    pitch: float = 39.04  # of the circle of their centres

    @property
    def orders(self) -> dict[str, float]:
        """Impulses per turn of the shaft: a worn spot on a ball strikes both races."""
        ratio = self.diameter / self.pitch
        return {
            "outer": self.balls / 2 * (1 - ratio),
            "inner": self.balls / 2 * (1 + ratio),
            "ball": (1 - ratio**2) / ratio,
            "cage": (1 - ratio) / 2,  # its turns
        }


@dataclass(frozen=True, eq=False)
class Conditions:
    """The conditions under which each of N windows is taken."""

    fault: Tensor  # (N,) of FAULT_CLASSES
    severity: Tensor  # (N,) size of the impulses, in deviations of the noise
    speed: Tensor  # (N,) turns of the shaft per second
    load: Tensor  # (N,) of the nominal one
    resonance: Tensor  # (N,) Hz, of the housing
    damping: Tensor  # (N,) ratio
    gains: Tensor  # (N, channels) from the bearing to the sensors
    harmonics: Tensor  # (N, 3, channels) of the shaft: imbalance, misalignment


@settings
class Sensors:
    """Simulated sensors, with settings."""

    windows: Count = 15
    """Windows per machine and class."""

    seed: Seed = 0
    """The seed of machines, conditions and noise."""

    def load(self) -> Dataset:
        """Return windows (time, channels), by default 2,400 / 600 / 1,200."""
        generator = torch.Generator().manual_seed(self.seed)
        made = [_part(count, self.windows, generator) for count in MACHINES]
        mean, deviation = made[0][0].mean((0, 1)), made[0][0].std((0, 1))  # (channels,)
        train, validation, test = (
            Examples((signals - mean) / deviation, faults, None, FAULT_CLASSES)
            for signals, faults in made
        )
        return Dataset("sensors", "signal", FAULT_CLASSES, None, train, validation, test)


def _part(machines: int, windows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    conditions = draw_conditions(machines, windows, generator)
    return vibrations(conditions, generator), conditions.fault


def draw_conditions(machines: int, windows: int, generator: torch.Generator) -> Conditions:
    """Draw machines, and the conditions of each when its windows of every class were taken."""
    each = windows * len(FAULT_CLASSES)
    fault = torch.arange(len(FAULT_CLASSES)).repeat(machines * windows)  # (N,)
    count = len(fault)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    def of_machine(values: Tensor) -> Tensor:
        return values.repeat_interleave(each, 0)

    harmonics = uniform(0.2, 1.0, machines, 3, 1) * uniform(0.5, 1.0, machines, 3, SENSORS)
    return Conditions(
        fault=fault,
        severity=uniform(1.5, 6.0, count),
        speed=of_machine(uniform(26.0, 30.0, machines)) * uniform(0.97, 1.03, count),
        load=uniform(0.5, 1.0, count),
        resonance=of_machine(uniform(2600.0, 3400.0, machines)),
        damping=of_machine(uniform(0.03, 0.06, machines)),
        gains=of_machine(uniform(0.5, 1.0, machines, SENSORS)),
        harmonics=of_machine(harmonics),
    )


def vibrations(
    conditions: Conditions,
    generator: torch.Generator,
    length: int = LENGTH,
    bearing: Bearing | None = None,
) -> Tensor:
    """Return what the sensors see: the shaft, the ringing housing, noise: (N, length, channels)."""
    orders = (bearing or Bearing()).orders
    struck = impulses(conditions, orders, length + LEAD, generator)  # (N, length + LEAD)
    rung = ringing(struck, conditions)[:, LEAD:, None] * conditions.gains[:, None]
    shaft = _shaft(conditions, length, generator)
    return shaft + rung + torch.randn(shaft.shape, generator=generator)


def impulses(
    conditions: Conditions, orders: dict[str, float], length: int, generator: torch.Generator
) -> Tensor:
    """Return the strikes of a worn spot on the grid of time: (N, length)."""
    order = torch.tensor([1.0, *(orders[name] for name in FAULT_CLASSES[1:])])[conditions.fault]
    between = 1 / (order * conditions.speed)  # (N,) seconds
    count = 2 + math.ceil(length / RATE / float(between.min()) * (1 + 5 * SLIP))
    shape = (len(between), count)
    slipped = 1 + SLIP * torch.randn(shape, generator=generator)
    first = torch.rand(shape[0], 1, generator=generator)
    times = between[:, None] * (first + slipped.cumsum(1) - 1)  # (N, count)
    size = conditions.severity * conditions.load * (conditions.fault > 0)
    sizes = size[:, None] * (1 + 0.1 * torch.randn(shape, generator=generator))
    return _on_grid(times, sizes * _load_zone(conditions, orders, times, generator), length)


def _load_zone(
    conditions: Conditions, orders: dict[str, float], times: Tensor, generator: torch.Generator
) -> Tensor:
    """Return how hard a strike is by where the worn spot is: (N, count).

    One on the outer race stays in the load zone, one on the inner turns with the shaft, one on a
    ball with the cage.
    """
    turns = torch.tensor([0.0, 0.0, 1.0, orders["cage"]])[conditions.fault] * conditions.speed
    phase = torch.rand(len(turns), 1, generator=generator)
    depth = torch.tensor([0.0, 0.0, 0.9, 0.7])[conditions.fault]
    return 1 + depth[:, None] * torch.cos(2 * torch.pi * (turns[:, None] * times + phase))


def _on_grid(times: Tensor, sizes: Tensor, length: int) -> Tensor:
    """Return impulses as samples, each shared between the two nearest: (N, length)."""
    positions = times * RATE
    before = positions.floor()
    grid = torch.zeros(len(times), length)
    for offset, share in ((0, 1 - (positions - before)), (1, positions - before)):
        index = before.long() + offset
        inside = (index >= 0) & (index < length)
        grid.scatter_add_(1, index.clamp(0, length - 1), sizes * share * inside)
    return grid


def ringing(struck: Tensor, conditions: Conditions) -> Tensor:
    """Return the housing's response to impulses, a damped resonance: (N, length) each."""
    length = struck.shape[1]
    time = torch.arange(length) / RATE
    circular = 2 * torch.pi * conditions.resonance[:, None]  # (N, 1)
    damping = conditions.damping[:, None]
    swing = torch.sin(circular * (1 - damping**2).sqrt() * time)
    answer = torch.exp(-damping * circular * time) * swing  # (N, length)
    spectrum = torch.fft.rfft(struck, 2 * length) * torch.fft.rfft(answer, 2 * length)
    answered: Tensor = torch.fft.irfft(spectrum, 2 * length)
    return answered[:, :length]


def _shaft(conditions: Conditions, length: int, generator: torch.Generator) -> Tensor:
    """Return one, two and three times the shaft's turning: (N, length, channels)."""
    time = torch.arange(length) / RATE
    signal = torch.zeros(len(time), 1)
    for number, sizes in enumerate(conditions.harmonics.unbind(1), start=1):
        phase = torch.rand(len(sizes), 1, sizes.shape[1], generator=generator)
        turns = number * conditions.speed[:, None, None] * time[:, None]  # (N, length, 1)
        signal = signal + sizes[:, None] * torch.sin(2 * torch.pi * (turns + phase))
    return signal
