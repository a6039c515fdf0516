"""Every shift of the table under one contract; affine against Keras, the rest against SciPy."""

import itertools
import re
from collections.abc import Callable

import numpy
import pytest
import scipy.ndimage
import scipy.stats
import torch
from torch import Tensor

from falconcal.data import Bounds
from falconcal.errors import UsageError, UserError
from falconcal.shifts import (
    SHIFTS,
    Shift,
    affine_shifts,
    find_computed_shift,
    noise_blur_contrast_shifts,
    sensor_shifts,
)
from falconcal.shifts.affine import rotation, warp
from falconcal.shifts.crafted import crafted_sensor_shifts
from falconcal.shifts.keyed_noise import KeyedNoise
from tests.helpers.paths import ROOT
from tests.helpers.small_data import reference, stripes

NUMBERS = {name: shift for name, shift in SHIFTS.items() if shift.takes == "numbers"}
IMAGES = {
    name: shift
    for name, shift in NUMBERS.items()
    if name not in {**sensor_shifts(), **crafted_sensor_shifts()} and "model" not in shift.needs
}
OTHERS = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(9))
SHIFT_LEVELS = [(name, level) for name, shift in IMAGES.items() for level in shift.levels]


@pytest.mark.parametrize("name", NUMBERS)
def test_level_0_is_the_identity_to_the_bit(name: str) -> None:
    images = stripes(5).inputs
    assert torch.equal(SHIFTS[name].at(images, 0), images)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("name", "level"), SHIFT_LEVELS)
def test_shape_type_and_range_are_kept_and_the_input_is_untouched(name: str, level: int) -> None:
    images = torch.rand(4, 3, 30, 32)
    before = images.clone()
    shifted = SHIFTS[name].at(images, level, others=images.flip(0), bounds=Bounds(0, 1))
    assert shifted.shape == images.shape
    assert shifted.dtype == images.dtype
    assert shifted.min() >= -1e-6
    assert shifted.max() <= 1 + 1e-6
    assert torch.equal(images, before)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", IMAGES)
def test_same_seed_same_bits_however_the_batch_is_cut(name: str) -> None:
    images, shift = torch.rand(23, 1, 28, 28), SHIFTS[name]
    whole = shift.at(images, 3, seed=5, others=OTHERS)
    assert torch.equal(shift.at(images, 3, seed=5, others=OTHERS), whole)
    for size in (1, 4, 10):
        numbers = torch.arange(23)
        parts = [
            shift.at(part, 3, seed=5, examples=numbers[part_numbers], others=OTHERS)
            for part, part_numbers in zip(
                torch.split(images, size), torch.split(numbers, size), strict=True
            )
        ]
        assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("name", [*affine_shifts(), *noise_blur_contrast_shifts()])
def test_higher_levels_lie_further_from_the_clean_images(name: str) -> None:
    shift, across = SHIFTS[name], torch.linspace(0, 1, 28)
    ramp = ((across[:, None] + 2 * across[None]) / 3)[None, None]  # (1, 1, 28, 28)
    distances = [(shift.at(ramp, level) - ramp).abs().mean().item() for level in shift.levels]
    assert distances[0] == 0
    assert all(near < far for near, far in itertools.pairwise(distances))


@pytest.mark.parametrize("name", SHIFTS)
def test_unknown_levels_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="levels 0 to"):
        SHIFTS[name].at(torch.rand(1, 1, 28, 28), 99)


@pytest.mark.parametrize(("row", "name"), list(enumerate(reference("affine")["perturbations"])))
def test_affine_outputs_match_keras_at_every_pixel_and_level(row: int, name: str) -> None:
    stored = reference("affine")
    shift = SHIFTS[str(name)]
    numpy.testing.assert_allclose(shift.strengths, stored["levels"][row])
    images = torch.from_numpy(stored["images"] / 255).float()[:, None]
    for level in shift.levels:
        ours = shift.at(images, level)[:, 0].numpy()
        numpy.testing.assert_allclose(ours, stored["outputs"][row, level], atol=1e-4, rtol=0)


def test_rotation_about_the_true_centre_is_exact_at_90_degrees() -> None:
    images = torch.rand(2, 1, 28, 28)
    turned = find_computed_shift("rot_right", "middle").at(images, 9)
    torch.testing.assert_close(turned, images.rot90(-1, (2, 3)), atol=1e-5, rtol=0)
    off_centre = find_computed_shift("rot_right", "keras").at(images, 9)
    assert not torch.allclose(off_centre, turned, atol=1e-2)


@pytest.mark.parametrize("size", [(28, 28), (31, 40)])
def test_warp_matches_scipy_on_any_size_and_on_colour(size: tuple[int, int]) -> None:
    images = torch.rand(3, 2, *size, dtype=torch.float64)
    matrix, _ = rotation(33.0)
    middle = (numpy.array(size) - 1) / 2
    offset = middle - matrix @ middle
    ours = warp(images, 33.0, matrix_of=rotation, centre="middle")
    for image, warped in zip(images.flatten(0, 1), ours.flatten(0, 1), strict=True):
        theirs = scipy.ndimage.affine_transform(
            image.numpy(), matrix, offset, order=1, mode="nearest"
        )
        numpy.testing.assert_allclose(warped.numpy(), theirs, atol=1e-9)


def test_affine_shifts_refuse_what_is_not_an_image() -> None:
    with pytest.raises(UserError, match="height, width"):
        affine_shifts()["shear"].at(torch.rand(3, 28), 1)


def test_gaussian_blur_matches_scipy() -> None:
    images = torch.rand(2, 1, 28, 28, dtype=torch.float64)
    ours = SHIFTS["gaussian_blur"].at(images, 1)
    for image, blurred in zip(images[:, 0], ours[:, 0], strict=True):
        theirs = scipy.ndimage.gaussian_filter(image.numpy(), 2.0, mode="mirror", radius=6)
        numpy.testing.assert_allclose(blurred.numpy(), theirs, atol=1e-12)


def test_contrast_keeps_the_mean_and_shrinks_the_deviation() -> None:
    images = torch.rand(4, 1, 28, 28)
    ours = SHIFTS["contrast"].at(images, 3)
    torch.testing.assert_close(ours.mean((1, 2, 3)), images.mean((1, 2, 3)))
    torch.testing.assert_close(ours.std((1, 2, 3)), 0.1 * images.std((1, 2, 3)))


def noise(seed: int = 0, level: int = 1, name: str = "some", count: int = 200) -> KeyedNoise:
    return KeyedNoise(name, seed, level, torch.arange(count))


def test_noise_is_uniform_and_normal() -> None:
    uniform = noise().uniform((500,)).flatten().numpy()
    normal = noise().normal((500,)).flatten().numpy()
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(normal, "norm").pvalue > 1e-3
    assert uniform.min() > 0
    assert uniform.max() < 1


@pytest.mark.parametrize("draw", [KeyedNoise.uniform, KeyedNoise.paired_uniform])
def test_the_highest_number_is_below_one_and_finds_a_place_in_any_list(
    draw: Callable[[KeyedNoise, tuple[int, ...]], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        KeyedNoise, "_bits", lambda noise, count, _: -torch.ones(len(noise.examples), count).long()
    )
    highest = draw(noise(count=1), (4,))
    assert (highest == 1 - 2**-24).all()
    counts = torch.arange(1, 5000)
    assert torch.equal((highest[0, 0] * counts).long(), counts - 1)


def test_noise_of_neighbours_is_unrelated() -> None:
    values = noise().normal((500,))  # (200, 500)
    between_examples = torch.corrcoef(values[:50]).fill_diagonal_(0).abs().max()
    between_positions = torch.corrcoef(values.T[:50]).fill_diagonal_(0).abs().max()
    assert between_examples < 0.25
    assert between_positions < 0.35


@pytest.mark.parametrize("other", [{"seed": 1}, {"level": 2}, {"name": "other"}])
def test_noise_changes_with_each_part_of_its_key(other: dict[str, int]) -> None:
    base, changed = noise().normal((500,)), noise(**other).normal((500,))  # type: ignore[arg-type]
    assert torch.corrcoef(torch.stack([base.flatten(), changed.flatten()]))[0, 1].abs() < 0.02


def test_a_shift_from_outside_needs_no_table() -> None:
    inverted = Shift("invert", (0.0, 1.0), lambda inputs, strength, _: strength - inputs)
    images = torch.rand(2, 1, 4, 4)
    torch.testing.assert_close(inverted.at(images, 1), 1 - images)


@pytest.mark.parametrize("name", IMAGES)
def test_whole_numbers_cannot_be_shifted_and_no_gradient_is_carried(name: str) -> None:
    with pytest.raises(UserError, match="floating-point inputs to shift"):
        SHIFTS[name].at(torch.zeros(1, 1, 28, 28).byte(), 1)
    images = torch.rand(2, 1, 28, 28, requires_grad=True)
    assert not SHIFTS[name].at(images, 1, others=OTHERS).requires_grad


@pytest.mark.parametrize("name", ["gaussian_noise", "gaussian_blur"])
def test_images_of_another_range_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="from 0 to 1, got -"):
        SHIFTS[name].at(torch.rand(2, 1, 28, 28) * 2 - 1, 1)


def test_uniform_and_normal_numbers_share_no_bits() -> None:
    normal = noise().normal((500,)).flatten()
    for stream in range(4):
        uniform = noise().uniform((500,), stream).flatten()
        assert torch.corrcoef(torch.stack([normal.abs(), uniform]))[0, 1].abs() < 0.02


def test_strengths_in_the_docs_are_those_of_the_table() -> None:
    page = (ROOT / "docs" / "measuring.md").read_text()
    for name in ("gaussian_noise", "gaussian_blur", "contrast"):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        numbers = re.findall(r"(?<![\w.\[])\d+(?:\.\d+)?", line.partition(" | ")[2])
        assert tuple(float(number) for number in numbers[:6]) == SHIFTS[name].strengths


def test_the_bits_that_stored_results_hold_stay() -> None:
    kept = KeyedNoise("some", 3, 2, torch.tensor([5, 77, 12345678901])).normal((31, 33))[2, 3, 4:8]
    written = [0.6720309257507324, 1.1378206014633179, -1.752626895904541, 1.0024604797363281]
    torch.testing.assert_close(kept, torch.tensor(written), atol=1e-6, rtol=0)


def test_two_shifts_in_a_row_are_each_what_they_are_alone() -> None:
    images, examples = torch.rand(3, 1, 28, 28), torch.tensor([4, 9, 2])
    turned, noisy = SHIFTS["rot_right"], SHIFTS["gaussian_noise"]
    both = turned | noisy
    assert both.name == "rot_right | gaussian_noise"
    assert list(both.levels) == list(noisy.levels)  # as far as both go
    assert torch.equal(both.at(images, 0), images)
    for level in both.levels[1:]:
        apart = turned.at(images, level, seed=3, examples=examples)
        apart = noisy.at(apart, level, seed=3, examples=examples)
        assert torch.equal(both.at(images, level, seed=3, examples=examples), apart)
    three = find_computed_shift("rot_right | gaussian_noise|contrast")
    assert three.name == "rot_right | gaussian_noise | contrast"
    expected = SHIFTS["contrast"].at(both.at(images, 2), 2)
    assert torch.equal(three.at(images, 2), expected)
    with pytest.raises(UsageError, match="unknown shift"):
        find_computed_shift("rot_right | nothing")
