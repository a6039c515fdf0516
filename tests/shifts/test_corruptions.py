"""The 19 corruptions under one contract, and each against a truth of its own.

Colours are checked against colorsys, resampling and smoothing against SciPy, blocks and JPEG
against Pillow, noise against its distribution, the rest against loops written out by hand.
"""

import colorsys
import io
import itertools
from typing import Literal

import numpy
import pytest
import scipy.ndimage
import scipy.stats
import torch
from PIL import Image
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts import SHIFTS, corruption_shifts
from falconcal.shifts.corruptions import CORRUPTIONS
from falconcal.shifts.corruptions.blur import (
    defocus_blur,
    magnified,
    motion_blurred,
    swapped_sources,
)
from falconcal.shifts.corruptions.digital import affine_points, exact_mean, resampled
from falconcal.shifts.corruptions.edges import edge_distance
from falconcal.shifts.corruptions.frost import TEXTURES, texture
from falconcal.shifts.corruptions.noise import poisson
from falconcal.shifts.corruptions.parameters import FOR_LARGE_IMAGES, FOR_SMALL_IMAGES, parameters
from falconcal.shifts.corruptions.plasma import plasma
from falconcal.shifts.corruptions.smoothing import gaussian_filtered, smoothing_matrix
from falconcal.shifts.corruptions.spatter import equalised
from falconcal.shifts.keyed_noise import KeyedNoise
from tests.helpers.corruption_images import RANDOM, natural, shift

# by their published parameters not further from the clean image at every next severity
NOT_MONOTONE = {
    32: {
        "saturate": "less colour, then more",
        "glass_blur": "severities 1 to 3 and 4 to 5 smooth more and swapped_sources alike",
        "motion_blur": "severities 3 and 4 differ in the thin end of the kernel alone",
        "spatter": "water, then mud",
        "frost": "severities 3 to 5 darken the image, 1 and 2 do not",
        "elastic_transform": "from large and smooth to small and rough",
    },
    224: {
        "saturate": "less colour, then more",
        "glass_blur": "reach, rounds and smoothing change places",
        "snow": "severity 3 has fewer, longer flakes than 2",
        "frost": "severities 3 and 4 differ in the share of the image alone",
        "fog": "severities 3 and 4 are as thick",
        "elastic_transform": "from large and smooth to small and rough",
    },
}


def noise(count: int = 1, seed: int = 0) -> KeyedNoise:
    return KeyedNoise("some", seed, 1, torch.arange(count))


def to_bytes(image: Tensor) -> Image.Image:
    pixels = (image * 255).round().byte().permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])


def test_there_are_19_with_five_severities_and_parameters_for_both_sizes() -> None:
    assert len(CORRUPTIONS) == 19
    assert list(CORRUPTIONS) == list(FOR_LARGE_IMAGES) == list(FOR_SMALL_IMAGES)
    for found in corruption_shifts().values():
        assert found.strengths == (0, 1, 2, 3, 4, 5)
        assert SHIFTS[found.name].name == found.name
    assert (
        parameters("contrast", 28, 28)
        == parameters("contrast", 32, 600)
        == FOR_SMALL_IMAGES["contrast"]
    )
    assert (
        parameters("contrast", 224, 224)
        == parameters("contrast", 96, 96)
        == FOR_LARGE_IMAGES["contrast"]
    )


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(2, 1, 28, 28), (2, 3, 32, 32), (1, 3, 97, 120), (1, 1, 96, 96)])
def test_any_size_grey_and_colour(name: str, shape: tuple[int, ...]) -> None:
    images = torch.rand(shape)
    for level in shift(name).levels:
        changed = shift(name).at(images, level)
        assert changed.shape == images.shape
        assert changed.dtype == images.dtype
        assert changed.device == images.device
        assert changed.min() >= 0
        assert changed.max() <= 1  # NaN is neither
        grey_saturate = name == "saturate" and shape[1] == 1
        assert torch.equal(changed, images) == (level == 0 or grey_saturate)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_are_kept(name: str, dtype: torch.dtype) -> None:
    images = natural(32, 2)
    changed = shift(name).at(images.to(dtype), 3)
    assert changed.dtype == dtype
    plain = shift(name).at(images.to(dtype).float(), 3)
    torch.testing.assert_close(changed.float(), plain, atol=2.0**-8, rtol=0)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(("size", "count", "cuts"), [(32, 75, (1, 7, 50)), (101, 4, (1, 3))])
def test_any_split_gives_the_same_bits(
    name: str, size: int, count: int, cuts: tuple[int, ...]
) -> None:
    images, numbers = natural(size, count), torch.arange(100, 100 + count)
    for level in shift(name).levels[1:]:
        whole = shift(name).at(images, level, seed=5, examples=numbers)
        assert torch.equal(shift(name).at(images, level, seed=5, examples=numbers), whole)
        for cut in cuts:
            parts = [
                shift(name).at(images[part], level, seed=5, examples=numbers[part])
                for part in (slice(0, cut), slice(cut, count))
            ]
            assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_another_seed_or_example_changes_what_is_random(name: str) -> None:
    images = natural(32, 1)
    first = shift(name).at(images, 5, seed=0)
    assert torch.equal(shift(name).at(images, 5, seed=1), first) != (name in RANDOM)
    other = shift(name).at(images, 5, seed=0, examples=torch.tensor([7]))
    assert torch.equal(other, first) != (name in RANDOM)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(("size", "count"), [(32, 48), (224, 6)])
def test_distance_from_the_clean_images_grows(name: str, size: int, count: int) -> None:
    images, levels = natural(size, count), shift(name).levels
    distances = [(shift(name).at(images, level) - images).abs().mean() for level in levels]
    growing = all(near < far for near, far in itertools.pairwise(distances))
    assert growing or name in NOT_MONOTONE[size], distances
    assert min(distances[1:]) > 0


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(
    "inputs", [torch.rand(4, 30), torch.rand(2, 2, 32, 32), torch.rand(2, 3, 27, 32)]
)
def test_what_is_no_image_is_refused(name: str, inputs: Tensor) -> None:
    with pytest.raises(UserError, match="1 or 3 channels, height, width"):
        shift(name).at(inputs, 1)
    with pytest.raises(UserError, match="from 0 to 1, got 0 to 255"):
        shift(name).at(torch.tensor([0.0, 255.0]).repeat(1, 3, 32, 16), 1)


# noise


def test_gaussian_and_speckle_noise_have_the_deviation_they_name() -> None:
    grey = torch.full((4, 3, 224, 224), 0.5)
    noisy = shift("gaussian_noise").at(grey, 1)
    assert scipy.stats.kstest(noisy.flatten()[:100_000], "norm", (0.5, 0.08)).pvalue > 1e-3
    speckled = shift("speckle_noise").at(grey, 1)
    assert scipy.stats.kstest(speckled.flatten()[:100_000], "norm", (0.5, 0.075)).pvalue > 1e-3


def test_impulse_noise_turns_its_share_to_black_and_white() -> None:
    changed = shift("impulse_noise").at(torch.full((4, 3, 224, 224), 0.5), 5).flatten()
    for value, share in ((0.0, 0.135), (1.0, 0.135), (0.5, 0.73)):
        found = int((changed == value).sum())
        assert scipy.stats.binomtest(found, len(changed), share).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.0, 0.3, 2.0, 3.99, 4.01, 7.5, 25.0, 60.0, 500.0])
def test_photons_are_poisson(rate: float) -> None:
    counts = poisson(torch.full((40, 5000), rate), noise(40)).flatten().numpy()
    if rate == 0:
        assert not counts.any()
        return
    expected = scipy.stats.poisson(rate)
    edges = numpy.unique(expected.ppf(numpy.linspace(0.002, 0.998, 40)))
    seen = numpy.diff([0, *(numpy.sum(counts <= edge) for edge in edges), len(counts)])
    shares = numpy.diff([0, *expected.cdf(edges), 1])
    assert scipy.stats.chisquare(seen, shares * len(counts)).pvalue > 1e-3
    assert counts.mean() == pytest.approx(rate, abs=5 * numpy.sqrt(rate / len(counts)))


def test_shot_noise_counts_photons() -> None:
    counts = shift("shot_noise").at(natural(224, 1), 5) * 3
    torch.testing.assert_close(counts, counts.round())


def test_paired_numbers_are_uniform_normal_and_unrelated() -> None:
    uniform, normal = noise(200).paired_uniform((501,)), noise(200).paired_normal((501,))
    assert scipy.stats.kstest(uniform.flatten(), "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(normal.flatten(), "norm").pvalue > 1e-3
    for values in (uniform, normal):
        assert torch.corrcoef(values[:50]).fill_diagonal_(0).abs().max() < 0.25
        halves = values[:, :250].flatten(), values[:, 251:].flatten()  # cosines and sines
        assert torch.corrcoef(torch.stack(halves))[0, 1].abs() < 0.02
        halves = values[:, :250].abs().flatten(), values[:, 251:].abs().flatten()
        assert torch.corrcoef(torch.stack(halves))[0, 1].abs() < 0.02
    other = noise(200).paired_uniform((501,), stream=1)
    assert torch.corrcoef(torch.stack([uniform.flatten(), other.flatten()]))[0, 1].abs() < 0.02


# blur


@pytest.mark.parametrize("deviation", [0.4, 1.0, 6.0])
def test_gaussian_smoothing_matches_scipy(deviation: float) -> None:
    image = torch.rand(1, 1, 40, 50)
    theirs = scipy.ndimage.gaussian_filter(
        image[0, 0].double().numpy(), deviation, mode="nearest", truncate=4
    )
    numpy.testing.assert_allclose(gaussian_filtered(image, deviation)[0, 0], theirs, atol=1e-6)


def test_defocus_spreads_a_point_over_a_disc() -> None:
    point = torch.zeros(1, 1, 41, 41)
    point[0, 0, 20, 20] = 1
    rows, columns = numpy.indices((41, 41)) - 20
    disc = (rows**2 + columns**2 <= 36) / numpy.sum(rows**2 + columns**2 <= 36)
    sharp = defocus_blur(point, noise(), 6, 0.1)[0, 0]
    numpy.testing.assert_allclose(sharp, disc, atol=1e-7)
    weights = numpy.exp(-(numpy.array([-1, 0, 1]) ** 2) / (2 * 0.5**2))
    rim = numpy.outer(weights, weights) / weights.sum() ** 2
    soft = scipy.ndimage.convolve(disc, rim, mode="constant")
    numpy.testing.assert_allclose(defocus_blur(point, noise(), 6, 0.5)[0, 0], soft, atol=1e-7)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_takes_pixels_as_a_loop_over_them_does(reach: int) -> None:
    height, width = 30, 37
    moves = torch.randint(-reach, reach, (3, 2, height, width))
    for move, sources in zip(moves.numpy(), swapped_sources(moves, reach), strict=True):
        pixels = numpy.arange(height * width).reshape(height, width)
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                down, right = move[:, row, column]
                pixels[row, column] = pixels[row + down, column + right]
        numpy.testing.assert_array_equal(sources.reshape(height, width), pixels)


@pytest.mark.parametrize("angle", [0.0, -90.0, -45.0, 30.0])
def test_motion_moves_a_point_along_its_angle(angle: float) -> None:
    point = torch.zeros(1, 1, 61, 61)
    point[0, 0, 30, 30] = 1
    blurred = motion_blurred(point, torch.tensor([angle]), 10, 3.0)[0, 0]
    weights = numpy.exp(-(numpy.arange(21) ** 2) / 18)
    expected = numpy.zeros((61, 61))
    for step, weight in enumerate(weights / weights.sum()):
        down = numpy.ceil(step * numpy.sin(numpy.radians(angle)) - 0.5)
        right = numpy.ceil(step * numpy.cos(numpy.radians(angle)) - 0.5)
        expected[30 - int(down), 30 - int(right)] += weight
    numpy.testing.assert_allclose(blurred, expected, atol=1e-7)


@pytest.mark.parametrize("factor", [1.0, 1.06, 2.5, 4.5])
def test_magnifying_matches_scipy(factor: float) -> None:
    image = torch.rand(1, 1, 60, 60)
    size = int(numpy.ceil(60 / factor))
    top = (60 - size) // 2
    middle = image[0, 0, top : top + size, top : top + size].numpy()
    larger = scipy.ndimage.zoom(middle, factor, order=1)
    top = (len(larger) - 60) // 2
    expected = larger[top : top + 60, top : top + 60]
    numpy.testing.assert_allclose(magnified(image, factor)[0, 0], expected, atol=1e-5)


def test_zoom_blur_of_an_even_image_changes_nothing() -> None:
    even = torch.full((1, 3, 224, 224), 0.3)
    torch.testing.assert_close(shift("zoom_blur").at(even, 5), even)


# weather


def test_plasma_is_what_squares_and_diamonds_give_by_hand() -> None:
    size, decay = 8, 1.7
    wobble = iter((noise().paired_uniform((size * size,))[0].double() * 2 - 1).tolist())
    heights, step, roughness = numpy.zeros((size, size)), size, 100.0

    def mean(*places: tuple[int, int]) -> float:
        return float(sum(heights[row % size, column % size] for row, column in places)) / 4

    while step >= 2:
        half, corners = step // 2, range(0, size, step)
        for row, column in itertools.product(corners, corners):
            around = [(row, column), (row + step, column), (row, column + step)]
            heights[row + half, column + half] = (
                mean(*around, (row + step, column + step)) + next(wobble) * roughness**2
            )
        for down, right in ((0, half), (half, 0)):
            for row, column in itertools.product(corners, corners):
                top, left = row + down, column + right
                ends = [
                    (top + half, left),
                    (top - half, left),
                    (top, left + half),
                    (top, left - half),
                ]
                heights[top, left] = mean(*ends) + next(wobble) * roughness**2
        step, roughness = step // 2, roughness / decay
    heights = (heights - heights.min()) / (heights.max() - heights.min())
    numpy.testing.assert_allclose(plasma(noise(), size, decay)[0], heights, atol=1e-5)


def test_fog_lies_alike_on_all_channels_and_keeps_the_brightest_value() -> None:
    images = natural(224, 2)
    foggy = shift("fog").at(images, 2)
    brightest = images.amax((1, 2, 3), keepdim=True)
    clouds = (foggy * (brightest + 2) / brightest - images) / 2
    torch.testing.assert_close(clouds[:, 0], clouds[:, 1], atol=1e-5, rtol=0)
    assert clouds.min() >= -1e-5
    assert clouds.max() <= 1 + 1e-5
    assert (foggy <= brightest + 1e-6).all()


def test_snow_falls_twice_once_upside_down() -> None:
    black = torch.zeros(2, 3, 224, 224)
    fallen = shift("snow").at(black, 1) - 0.2 * 0.5  # a fifth of black whitened to 0.5
    inside = fallen < 0.9 - 1e-5  # where white does not cut it off
    assert fallen.min() >= -1e-6
    assert fallen.max() > 0.3
    torch.testing.assert_close(fallen * inside, (fallen * inside).flip(2, 3), atol=1e-6, rtol=0)


def test_frost_lays_a_pane_over_the_image() -> None:
    black, dark = torch.zeros(3, 3, 224, 224), torch.full((3, 3, 224, 224), 0.1)
    on_black, on_dark = shift("frost").at(black, 3), shift("frost").at(dark, 3)
    torch.testing.assert_close(on_dark - on_black, dark * 0.7, atol=1e-6, rtol=0)
    assert on_black.max() <= 0.7 + 1e-6


@pytest.mark.end_to_end
def test_panes_differ_and_cover_any_size() -> None:
    panes = [texture(number, 512, 1.0) for number in range(TEXTURES)]
    for one, other in itertools.combinations(panes, 2):
        assert (one - other).abs().mean() > 0.02
    for pane in panes:
        assert pane.mean(0).std() > 0.05
    large = shift("frost").at(torch.rand(1, 3, 520, 700), 1)
    assert large.shape == (1, 3, 520, 700)


def pixels_of(images: Tensor) -> list[tuple[float, float, float]]:
    flat = images.permute(0, 2, 3, 1).reshape(-1, 3).double().tolist()
    return [(red, green, blue) for red, green, blue in flat]


def colourful() -> Tensor:
    images = torch.rand(1, 3, 96, 96)
    images[:, :, :4] = torch.rand(1, 1, 4, 96)  # grey rows, without hue
    images[:, :, 0, 0] = 0
    return images


def test_brightness_raises_the_value_alone() -> None:
    images = colourful()
    expected = []
    for red, green, blue in pixels_of(images):
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        expected.append(colorsys.hsv_to_rgb(hue, saturation, min(value + 0.3, 1)))
    ours = pixels_of(shift("brightness").at(images, 3))
    numpy.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("level", [1, 3, 5])
def test_saturate_changes_the_saturation_alone(level: int) -> None:
    images, (factor, offset) = colourful(), FOR_LARGE_IMAGES["saturate"][level - 1]
    expected = []
    for red, green, blue in pixels_of(images):
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        expected.append(colorsys.hsv_to_rgb(hue, min(saturation * factor + offset, 1), value))
    ours = pixels_of(shift("saturate").at(images, level))
    numpy.testing.assert_allclose(ours, expected, atol=1e-5)


# digital


@pytest.mark.parametrize("level", [1, 5])
def test_contrast_keeps_the_mean_and_shrinks_the_deviation_of_each_channel(level: int) -> None:
    images, (kept,) = natural(224, 2), FOR_LARGE_IMAGES["contrast"][level - 1]
    ours = shift("contrast").at(images, level)
    torch.testing.assert_close(ours.mean((2, 3)), images.mean((2, 3)))
    torch.testing.assert_close(ours.std((2, 3)), kept * images.std((2, 3)), rtol=1e-4, atol=1e-6)


def test_the_exact_mean_is_the_mean_in_any_order() -> None:
    images = torch.rand(1, 3, 101, 103)
    torch.testing.assert_close(exact_mean(images)[..., 0, 0], images.double().mean((2, 3)).float())
    order = torch.randperm(101)
    assert torch.equal(exact_mean(images[:, :, order].flip(3)), exact_mean(images))


@pytest.mark.parametrize("size", [28, 32, 96, 224])
@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_pixelate_matches_pillow(size: int, level: int) -> None:
    (image,) = natural(size, 1)
    (kept,) = parameters("pixelate", size, size)[level - 1]
    small = to_bytes(image).resize((int(size * kept),) * 2, Image.Resampling.BOX)
    theirs = numpy.asarray(small.resize((size, size), Image.Resampling.NEAREST)) / 255
    ours = shift("pixelate").at(image[None], level)[0].permute(1, 2, 0)
    numpy.testing.assert_allclose(ours, theirs, atol=1.01 / 255)


@pytest.mark.end_to_end
@pytest.mark.parametrize("size", [28, 32, 45, 101, 224])
@pytest.mark.parametrize("grey", [False, True])
def test_jpeg_matches_pillow(size: int, grey: bool) -> None:
    images = natural(size, 8)
    images = (images[:, :1] * 255).round() / 255 if grey else images
    for level, (quality,) in enumerate(parameters("jpeg_compression", size, size), start=1):
        ours = shift("jpeg_compression").at(images, level)
        theirs = torch.stack([through_pillow(image, int(quality)) for image in images])
        assert (ours - theirs).abs().mean() < 1.5 / 255
        assert (images - theirs).abs().mean() > 2 / 255


def through_pillow(image: Tensor, quality: int) -> Tensor:
    file = io.BytesIO()
    to_bytes(image).save(file, "JPEG", quality=quality)
    pixels = numpy.array(Image.open(file))
    return torch.from_numpy(pixels.reshape(*image.shape[1:], -1)).permute(2, 0, 1) / 255


def test_elastic_corners_come_from_where_they_were() -> None:
    corners = torch.rand(5, 3, 2) * 20 - 10
    points = affine_points(corners, 90, 120)  # (5, 2, 90, 120)
    half, middle = 30, torch.tensor([60.0, 45.0])
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    before = middle + half * signs  # (3, 2) as (right, down)
    after = before + corners  # between pixels, so read between them: the map is affine
    for example in range(5):
        for place in range(3):
            where = [after[example, place, 1].item(), after[example, place, 0].item()]
            found = [
                scipy.ndimage.map_coordinates(plane.double().numpy(), [[w] for w in where], order=1)
                for plane in points[example]
            ]
            numpy.testing.assert_allclose(numpy.ravel(found), before[place], atol=1e-3)


@pytest.mark.parametrize(("mirror_pixel", "mode"), [(True, "reflect"), (False, "mirror")])
def test_reading_between_pixels_matches_scipy(
    mirror_pixel: bool, mode: Literal["reflect", "mirror"]
) -> None:
    image, points = torch.rand(1, 1, 40, 50), torch.rand(1, 2, 40, 50) * 80 - 20
    ours = resampled(image, points, mirror_pixel=mirror_pixel)[0, 0]
    places = points[0].flip(0).double().numpy()  # (down, right)
    theirs = scipy.ndimage.map_coordinates(image[0, 0].double().numpy(), places, order=1, mode=mode)
    numpy.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("deviation", [0.96, 2.44, 170.8])
def test_smoothing_matrix_matches_scipy(deviation: float) -> None:
    line = torch.rand(60)
    theirs = scipy.ndimage.gaussian_filter1d(
        line.double().numpy(), deviation, mode="reflect", truncate=3
    )
    ours = smoothing_matrix(60, deviation, 3.0, line.device) @ line
    numpy.testing.assert_allclose(ours, theirs, atol=1e-5)


# spatter


def test_distance_matches_scipy() -> None:
    edges = (torch.rand(2, 1, 60, 70) > 0.995).float()
    for edge, found in zip(edges[:, 0], edge_distance(edges, 20)[:, 0], strict=True):
        exact = scipy.ndimage.distance_transform_edt(1 - edge.numpy())
        numpy.testing.assert_allclose(found, exact.clip(max=20), atol=1e-5)


def test_equalised_values_use_all_greys() -> None:
    values = torch.tensor([0, 0, 0, 0, 3, 3, 7, 20]).reshape(1, 1, 2, 4)
    greys = equalised(values).flatten().tolist()
    assert greys == [0, 0, 0, 0, round(255 * 2 / 4), round(255 * 2 / 4), round(255 * 3 / 4), 255]
    assert equalised(torch.full((1, 1, 4, 4), 5)).unique().numel() == 1


def test_mud_is_brown_and_water_is_pale() -> None:
    black = torch.zeros(4, 3, 224, 224)
    mud = shift("spatter").at(black, 5)
    covered = mud.sum(1) > 0
    shares = mud.permute(0, 2, 3, 1)[covered]
    torch.testing.assert_close(shares[:, 0] / shares[:, 2], torch.full((len(shares),), 63 / 20))
    water = shift("spatter").at(black, 1)
    torch.testing.assert_close(
        water.amax((2, 3)), torch.tensor([175, 238, 238]).repeat(4, 1) / 255 * 0.6
    )
