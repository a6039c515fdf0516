"""The made vibration signals have the physics of worn bearings, by SciPy's envelope spectrum."""

from dataclasses import replace

import numpy
import pytest
import scipy.signal
import torch

from falconcal.data import load_dataset
from falconcal.data.sets.sensors import (
    FAULT_CLASSES,
    LEAD,
    MACHINES,
    RATE,
    SENSORS,
    Bearing,
    Conditions,
    Sensors,
    draw_conditions,
    impulses,
    ringing,
    vibrations,
)

SPEED, SECONDS = 29.0, 8


def conditions(fault: str, **changes: object) -> Conditions:
    """Return one window on a test bench: the speed is known, nothing lies over the bearing."""
    bench = Conditions(
        fault=torch.tensor([FAULT_CLASSES.index(fault)]),
        severity=torch.tensor([10.0]),
        speed=torch.tensor([SPEED]),
        load=torch.ones(1),
        resonance=torch.tensor([3000.0]),
        damping=torch.tensor([0.05]),
        gains=torch.ones(1, SENSORS),
        harmonics=torch.zeros(1, 3, SENSORS),
    )
    return replace(bench, **changes)  # type: ignore[arg-type]


def signal(made: Conditions, seed: int = 0) -> numpy.ndarray:
    """Return what the first sensor sees in some seconds."""
    generator = torch.Generator().manual_seed(seed)
    return vibrations(made, generator, length=int(SECONDS * RATE))[0, :, 0].numpy()


def envelope_spectrum(seen: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return frequencies and the spectrum of the envelope about the resonance."""
    band = scipy.signal.butter(4, (2200, 3800), "band", fs=RATE, output="sos")
    envelope = numpy.abs(scipy.signal.hilbert(scipy.signal.sosfiltfilt(band, seen)))
    return scipy.signal.welch(envelope, RATE, nperseg=2 * int(RATE), detrend="constant")


def highest(seen: numpy.ndarray, low: float, high: float) -> tuple[float, float]:
    """Return the frequency of the highest peak between two, and its height over the median."""
    frequencies, power = envelope_spectrum(seen)
    inside = (frequencies >= low) & (frequencies <= high)
    peak = int(power[inside].argmax())
    floor = numpy.median(power[(frequencies >= 20) & (frequencies <= 500)])
    return float(frequencies[inside][peak]), float(power[inside][peak] / floor)


def test_orders_are_those_that_makers_state_for_the_bearing() -> None:
    """Of a 6205, as the bearing data centre of Case Western Reserve University lists them."""
    stated = {"outer": 3.5848, "inner": 5.4152, "ball": 4.7135, "cage": 0.39828}
    assert Bearing().orders == pytest.approx(stated, rel=1e-3)


@pytest.mark.parametrize("fault", FAULT_CLASSES[1:])
def test_the_envelope_spectrum_peaks_at_the_fault_frequency(fault: str) -> None:
    expected = SPEED * Bearing().orders[fault]
    frequency, height = highest(signal(conditions(fault)), 60, 220)
    assert frequency == pytest.approx(expected, rel=0.01)
    assert height > 30


def test_a_healthy_bearing_has_no_peak() -> None:
    _, height = highest(signal(conditions("healthy")), 60, 220)
    assert height < 8


@pytest.mark.parametrize(("fault", "turning"), [("inner", 1.0), ("ball", Bearing().orders["cage"])])
def test_what_turns_through_the_load_zone_modulates(fault: str, turning: float) -> None:
    """Peaks on either side of the fault frequency, by the frequency of the turning."""
    seen, centre = signal(conditions(fault)), SPEED * Bearing().orders[fault]
    for side in (-1, 1):
        expected = centre + side * SPEED * turning
        frequency, height = highest(seen, expected - 3, expected + 3)
        assert frequency == pytest.approx(expected, abs=1.0)
        assert height > 8


def test_a_place_on_the_outer_race_is_not_modulated() -> None:
    seen, centre = signal(conditions("outer")), SPEED * Bearing().orders["outer"]
    for side in (-1, 1):
        expected = centre + side * SPEED
        assert highest(seen, expected - 3, expected + 3)[1] < 8


def test_the_housing_rings_at_its_resonance_and_dies_away_by_its_damping() -> None:
    struck = torch.zeros(1, 400)
    struck[0, 50] = 2.0
    rung = ringing(struck, conditions("outer"))[0].double().numpy()
    time = (numpy.arange(400) - 50) / RATE
    circular = 2 * numpy.pi * 3000
    swing = numpy.exp(-0.05 * circular * time) * numpy.sin(
        circular * numpy.sqrt(1 - 0.05**2) * time
    )
    numpy.testing.assert_allclose(rung, numpy.where(time >= 0, 2 * swing, 0), atol=1e-5)


def test_strikes_come_as_often_as_the_geometry_says_and_slip_a_little() -> None:
    generator = torch.Generator().manual_seed(0)
    length = int(SECONDS * RATE)
    grid = impulses(conditions("outer"), Bearing().orders, length, generator)[0]
    places = (grid[:-1] + grid[1:] > 5).nonzero()[:, 0]
    gaps = places.diff()[places.diff() > 2].double() / RATE
    expected = 1 / (SPEED * Bearing().orders["outer"])
    assert float(gaps.mean()) == pytest.approx(expected, rel=0.01)
    assert 0.005 < float(gaps.std()) / expected < 0.02
    assert int(grid.count_nonzero()) <= 2 * (len(gaps) + 2)


def test_severity_and_load_make_the_impulses_larger_and_leave_the_rest() -> None:
    quiet = signal(conditions("outer", severity=torch.tensor([0.0])))
    full, half = (
        signal(conditions("outer", load=torch.tensor([load]))) - quiet for load in (1.0, 0.5)
    )
    numpy.testing.assert_allclose(half, full / 2, atol=1e-4)
    assert numpy.abs(full).max() > 5


def test_the_shaft_turns_once_twice_and_three_times() -> None:
    harmonics = torch.tensor([4.0, 2.0, 1.0])[None, :, None].expand(1, 3, SENSORS)
    power = numpy.abs(numpy.fft.rfft(signal(conditions("healthy", harmonics=harmonics))))
    heights = [power[round(number * SPEED * SECONDS)] for number in (1, 2, 3)]
    expected = [size * SECONDS * RATE / 2 for size in (4, 2, 1)]
    assert heights == pytest.approx(expected, rel=0.05)


def test_machines_stay_as_they_are_while_speed_and_load_vary() -> None:
    made = draw_conditions(3, 5, torch.Generator().manual_seed(0))
    assert made.fault.bincount().tolist() == [15] * 4
    by_machine = made.resonance.reshape(3, -1)
    assert (by_machine == by_machine[:, :1]).all()
    assert made.resonance.unique().numel() == 3
    assert made.speed.unique().numel() == made.load.unique().numel() == 60


def test_the_windows_are_scaled_seeded_and_balanced() -> None:
    data = load_dataset("sensors", windows=1)
    sizes = [len(part) for part in (data.train, data.validation, data.test)]
    assert sizes == [count * len(FAULT_CLASSES) for count in MACHINES]
    assert data.train.shape == (1024, SENSORS)
    inputs = data.train.first(len(data.train)).inputs
    torch.testing.assert_close(inputs.std((0, 1)), torch.ones(SENSORS), rtol=1e-4, atol=0)
    torch.testing.assert_close(inputs.mean((0, 1)), torch.zeros(SENSORS), rtol=0, atol=1e-4)
    again, other = Sensors(windows=1).load(), Sensors(windows=1, seed=1).load()
    assert torch.equal(again.test.first(5).inputs, data.test.first(5).inputs)
    assert not torch.equal(other.test.first(5).inputs, data.test.first(5).inputs)


def test_impulses_before_the_window_have_died_away() -> None:
    """So the lead is long enough: the slowest ringing falls below a thousandth in it."""
    slowest = conditions("outer", resonance=torch.tensor([2600.0]), damping=torch.tensor([0.03]))
    struck = torch.zeros(1, LEAD + 1)
    struck[0, 0] = 1.0
    assert float(ringing(struck, slowest)[0, LEAD:].abs().max()) < 1e-3
