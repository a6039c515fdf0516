"""Which shifts are kin of families that something was fitted on."""

from pathlib import Path

import numpy
import pytest

from falconcal.recalibration.ladder import LADDERS
from falconcal.shifts import SHIFTS, Shift, find_computed_shift, find_stored, kin_among


@pytest.mark.parametrize(
    ("tested", "families", "kin"),
    [
        (["corrupt_fog", "corrupt_shot_noise"], ["gaussian_noise"], ["corrupt_shot_noise"]),
        (["gaussian_noise"], ["gaussian_noise"], ["gaussian_noise"]),  # the very family
        (["gaussian_noise"], ["corrupt_shot_noise"], ["gaussian_noise"]),  # the other way round
        (["corrupt_shot_noise"], ["corrupt_impulse_noise"], ["corrupt_shot_noise"]),
        (["shear | contrast", "shear"], ["contrast"], ["shear | contrast"]),
        (["contrast", "shear"], ["wave | contrast"], ["contrast"]),
        (["rot_left", "shear"], ["rot_right"], ["rot_left"]),
        (["sensor_drift", "stuck_channels"], ["group_offset"], ["sensor_drift"]),
        (["word_swap", "word_drop"], ["word_swap_90"], ["word_swap"]),
        (["corrupt_fog"], ["my_package.shifts:mine"], []),
        (["contrast"], [], []),
    ],
)
def test_kin(tested: list[str], families: list[str], kin: list[str]) -> None:
    assert kin_among([find_computed_shift(name) for name in tested], families) == kin


def test_a_shift_of_ones_own_says_what_it_resembles() -> None:
    own = Shift("hail", (0.0, 1.0), lambda inputs, part, _: part * inputs, kin=("gaussian_noise",))
    assert kin_among([own], ["gaussian_noise"]) == ["hail"]
    assert kin_among([own], ["contrast"]) == []


def test_no_affine_shift_is_kin_of_the_crafted_ladder() -> None:
    affine = [SHIFTS[name] for name in ("rot_left", "xshift", "shear", "xyzoom")]
    assert kin_among(affine, LADDERS["image"]) == []


@pytest.mark.parametrize(
    ("corruption", "family", "is_kin"),
    [
        ("shot_noise", "gaussian_noise", True),
        ("fog", "corrupt_fog", True),
        ("fog", "gaussian_noise", False),
        ("rotate", "rot_left", True),
        ("zigzag", "background_lines", True),
        ("canny_edges", "contrast", False),
    ],
)
def test_stored_corruptions_have_kin(
    tmp_path: Path, corruption: str, family: str, is_kin: bool
) -> None:
    folder = tmp_path / corruption
    folder.mkdir()
    numpy.save(folder / "test_images.npy", numpy.zeros((2, 28, 28, 1), "uint8"))
    numpy.save(folder / "test_labels.npy", numpy.array([3, 7]))
    stored = find_stored(f"mnist_c:{corruption}", str(tmp_path))
    assert kin_among([stored], [family]) == [f"mnist_c:{corruption}"] * is_kin
