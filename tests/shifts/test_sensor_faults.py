"""Sensor shifts on tables and signals: the contract of every shift, and what each says it does."""

import itertools

import pytest
import scipy.stats
import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts import sensor_shifts

SHIFTS = sensor_shifts()
KINDS = {"table": (40, 10), "signal": (40, 25, 10)}


@pytest.fixture(params=KINDS)
def inputs(request: pytest.FixtureRequest) -> Tensor:
    return torch.randn(KINDS[request.param])


@pytest.mark.parametrize("name", SHIFTS)
def test_contract_of_a_shift(name: str, inputs: Tensor) -> None:
    shift, numbers = SHIFTS[name], torch.arange(len(inputs))
    assert len(shift.strengths) == 10
    assert torch.equal(shift.at(inputs, 0), inputs)
    for level in shift.levels[1:]:
        whole = shift.at(inputs, level, seed=3)
        assert whole.shape == inputs.shape
        assert not torch.equal(whole, inputs)
        parts = [
            shift.at(inputs[part], level, seed=3, examples=numbers[part])
            for part in (slice(0, 7), slice(7, 40))
        ]
        assert torch.equal(torch.cat(parts), whole)
        assert not torch.equal(shift.at(inputs, level, seed=4), whole)
    assert shift.at(inputs.double(), 1).dtype == torch.float64
    with pytest.raises(UserError, match="tables"):
        shift.at(torch.rand(2, 1, 28, 28), 1)


@pytest.mark.parametrize("name", SHIFTS)
def test_distance_grows_with_the_level(name: str) -> None:
    for shape in ((600, 10), (600, 8, 10)):
        inputs = torch.randn(shape)
        changed = [SHIFTS[name].at(inputs, level) for level in SHIFTS[name].levels]
        distances = [(one - inputs).abs().mean() for one in changed]
        assert all(near < far for near, far in itertools.pairwise(distances))


def test_drift_grows_along_time_and_offset_does_not() -> None:
    inputs = torch.zeros(20, 5, 6)
    drifted, moved = (
        SHIFTS[name].at(inputs, 9).abs() for name in ("sensor_drift", "sensor_offset")
    )
    ramp = torch.tensor([0, 0.75, 1.5, 2.25, 3])
    torch.testing.assert_close(drifted, ramp[None, :, None].expand(20, 5, 6))
    torch.testing.assert_close(moved, torch.full((20, 5, 6), 3.0))
    signs = SHIFTS["sensor_offset"].at(inputs, 9)[:, 0].sign().flatten()
    assert scipy.stats.binomtest(int((signs > 0).sum()), len(signs)).pvalue > 1e-3


def test_noise_has_the_deviation_it_names() -> None:
    noisy = SHIFTS["sensor_noise"].at(torch.zeros(100, 100), 4)
    assert scipy.stats.kstest(noisy.flatten(), "norm", (0, 0.5)).pvalue > 1e-3


def test_the_named_share_of_channels_is_missing_or_stuck(inputs: Tensor) -> None:
    for level in range(1, 10):
        gone = SHIFTS["missing_channels"].at(inputs, level)
        all_zero = (gone.reshape(40, -1, 10) == 0).all(1)  # (40, 10)
        assert (all_zero.sum(1) == level).all()
        assert (gone[gone != 0] == inputs[gone != 0]).all()


def test_a_stuck_signal_stays_where_it_was() -> None:
    inputs = torch.randn(40, 25, 10)
    stuck = SHIFTS["stuck_channels"].at(inputs, 5)
    for before, after in zip(inputs.mT.reshape(-1, 25), stuck.mT.reshape(-1, 25), strict=True):
        changed = (before != after).nonzero()
        if len(changed):
            since = int(changed[0]) - 1
            assert torch.equal(after[: since + 1], before[: since + 1])
            assert (after[since:] == before[since]).all()


def test_a_stuck_channel_of_a_table_shows_one_value() -> None:
    inputs = torch.randn(200, 10)
    stuck = SHIFTS["stuck_channels"].at(inputs, 5)
    changed = stuck != inputs
    assert (changed.sum(1) == 5).all()
    for channel in range(10):
        assert stuck[:, channel][changed[:, channel]].unique().numel() == 1
