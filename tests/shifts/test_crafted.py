"""Crafted shifts: none is affine, each does what it says, and tables and signals have theirs."""

import numpy
import pytest
import torch

from falconcal.data import Bounds, Examples
from falconcal.errors import UserError
from falconcal.shifts import SHIFTS, shift_context
from falconcal.shifts.crafted import crafted_image_shifts, crafted_sensor_shifts
from falconcal.shifts.crafted.elastic_warp import unit_fields
from falconcal.shifts.crafted.patch_shuffle import patch_order
from falconcal.shifts.keyed_noise import KeyedNoise

IMAGES = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(1))


def noise(count: int = 6) -> KeyedNoise:
    return KeyedNoise("any", 0, 1, torch.arange(count))


def test_the_elastic_field_has_no_affine_part_by_least_squares() -> None:
    fields = unit_fields(noise(), 28, 20).double().flatten(0, 1)  # (12, 28, 20)
    down, right = numpy.meshgrid(
        numpy.linspace(-1, 1, 28), numpy.linspace(-1, 1, 20), indexing="ij"
    )
    basis = numpy.stack([numpy.ones(560), down.ravel(), right.ravel()], 1)
    affine, *_ = numpy.linalg.lstsq(basis, fields.flatten(1).T.numpy(), rcond=None)
    assert numpy.abs(affine).max() < 1e-6
    torch.testing.assert_close(
        fields.reshape(6, 2, 28, 20).square().mean((1, 2, 3)), torch.ones(6).double()
    )


@pytest.mark.parametrize("name", crafted_image_shifts())
def test_higher_levels_change_images_more_on_average(name: str) -> None:
    shift = SHIFTS[name]
    moved = [
        (shift.at(IMAGES, level, others=IMAGES, bounds=Bounds(0, 1)) - IMAGES).abs().mean()
        for level in (0, 1, 5, 9)
    ]
    assert moved[0] == 0
    assert moved[1] < moved[3]
    assert moved[2] > 0.25 * moved[3]


def test_a_swirl_leaves_the_corners_and_turns_the_middle() -> None:
    ramp = torch.linspace(0, 1, 28).expand(6, 1, 28, 28)
    moved = (SHIFTS["swirl"].at(ramp, 9) - ramp).abs().mean((0, 1))
    assert moved[10:18, 10:18].mean() > 3 * moved[[0, 0, -1, -1], [0, -1, 0, -1]].mean()


def test_patches_change_places_and_none_is_lost() -> None:
    order = patch_order(noise(), 0.5)
    assert torch.equal(order.sort(1).values, torch.arange(16).expand(6, -1))
    assert torch.equal((order != torch.arange(16)).sum(1), torch.full((6,), 8))
    shuffled = SHIFTS["patch_shuffle"].at(IMAGES, 5)
    assert torch.equal(shuffled.flatten(1).sort().values, IMAGES.flatten(1).sort().values)


def test_rows_slip_sideways_and_keep_their_values() -> None:
    slipped = SHIFTS["row_jitter"].at(IMAGES, 9)
    assert torch.equal(slipped.sort(3).values, IMAGES.sort(3).values)
    assert not torch.equal(slipped, IMAGES)


def test_a_box_hides_the_stated_part_of_the_image() -> None:
    hidden = (SHIFTS["occlusion"].at(IMAGES, 5, bounds=Bounds(0, 1)) != IMAGES).float().mean()
    assert hidden == pytest.approx(0.5, abs=0.06)


def test_lines_only_brighten() -> None:
    lined = SHIFTS["background_lines"].at(IMAGES, 9, bounds=Bounds(0, 1))
    assert (lined >= IMAGES).all()
    assert (lined > IMAGES).any()


def test_no_example_is_mixed_with_itself_and_half_at_most() -> None:
    values = torch.arange(8.0).reshape(8, 1, 1, 1).expand(8, 1, 28, 28) / 8
    mixed = SHIFTS["mixed_images"].at(values, 9, others=values[:5])
    partners = (mixed - 0.5 * values)[:, 0, 0, 0] * 16
    assert (partners[:5].round() != torch.arange(5)).all()
    assert set(partners.round().long().tolist()) <= set(range(5))
    with pytest.raises(UserError, match="others="):
        SHIFTS["mixed_images"].at(values, 1)
    part = Examples(values, torch.zeros(8).long(), Bounds(0, 1))
    given = shift_context(part, 0, part.labels)
    assert SHIFTS["mixed_images"].at(values, 1, **given).shape == values.shape


@pytest.mark.parametrize("name", crafted_sensor_shifts())
def test_signals_are_shifted_and_batches_change_no_bits(name: str) -> None:
    signals, shift = torch.randn(7, 32, 3), SHIFTS[name]
    whole = shift.at(signals, 4, seed=2)
    assert whole.shape == signals.shape
    assert not torch.equal(whole, signals)
    parts = [
        shift.at(signals[one : one + 1], 4, seed=2, examples=torch.tensor([one]))
        for one in range(7)
    ]
    assert torch.equal(torch.cat(parts), whole)


def test_gain_multiplies_a_channel_by_one_factor_and_time_keeps_its_ends() -> None:
    signals = torch.rand(3, 16, 2) + 1
    factors = SHIFTS["gain"].at(signals, 5) / signals
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
    warped = SHIFTS["time_warp"].at(signals, 9)
    torch.testing.assert_close(warped[:, 0], signals[:, 0])
    with pytest.raises(UserError, match="a table has no time"):
        SHIFTS["time_warp"].at(torch.rand(3, 4), 1)


@pytest.mark.parametrize("name", crafted_image_shifts())
def test_tables_are_refused_by_those_for_images(name: str) -> None:
    if name in ("mixed_images", "speckle"):
        pytest.skip("works on any numbers")
    with pytest.raises(UserError, match="made for images"):
        SHIFTS[name].at(torch.rand(3, 4), 1)


def test_kin_are_families_of_the_table() -> None:
    for shift in SHIFTS.values():
        assert set(shift.kin) <= set(SHIFTS)
    assert SHIFTS["corrupt_shot_noise"].kin == ("gaussian_noise",)
