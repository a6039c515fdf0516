"""The corruptions against imagecorruptions-imaug, with the published parameters for each size.

Skipped where the extra ``peers`` is not installed: ``pip install -e '.[dev,peers]'``.
"""

import numpy
import pytest
import torch
from torch import Tensor

from falconcal.shifts.corruptions import CORRUPTIONS
from falconcal.shifts.corruptions.blur import motion_blurred
from falconcal.shifts.corruptions.digital import elastic_transform
from falconcal.shifts.corruptions.edges import canny
from falconcal.shifts.corruptions.smoothing import gaussian_filtered
from falconcal.shifts.corruptions.spatter import highlights
from falconcal.shifts.keyed_noise import KeyedNoise
from tests.helpers.corruption_images import RANDOM, natural, shift
from tests.helpers.peer_corruptions import peer

pytestmark = pytest.mark.filterwarnings("ignore")

COUNTS = {32: 64, 112: 16, 224: 4}  # pixels a side: images
OURS_ALONE = {"frost", "elastic_transform"}  # textures of our own; the peer's own form


def changed_by_peer(name: str, images: Tensor, level: int) -> Tensor:
    module = pytest.importorskip("imagecorruptions.corruptions")
    numpy.random.seed(0)  # it draws from the global generator
    corrupted = peer(module, name, images.shape[2])
    outputs = [
        corrupted((image * 255).round().byte().permute(1, 2, 0).contiguous().numpy(), level)
        for image in images
    ]
    return torch.from_numpy(numpy.stack(outputs)).permute(0, 3, 1, 2) / 255


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in RANDOM])
@pytest.mark.parametrize("size", COUNTS)
def test_pixels_of_what_is_not_random_agree_to_two_grey_values(name: str, size: int) -> None:
    images = natural(size, 4)
    for level in range(1, 6):
        theirs = changed_by_peer(name, images, level)
        assert (shift(name).at(images, level) - theirs).abs().mean() < 2 / 255


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in OURS_ALONE])
@pytest.mark.parametrize("size", COUNTS)
def test_images_have_the_same_statistics(name: str, size: int) -> None:
    images = natural(size, COUNTS[size])
    for level in range(1, 6):
        ours = statistics(shift(name).at(images, level), images)
        theirs = statistics(changed_by_peer(name, images, level) + 0.5 / 255, images)
        check_alike(ours, theirs)


@pytest.mark.end_to_end
@pytest.mark.parametrize("size", COUNTS)
def test_elastic_fields_of_the_peers_form_have_the_same_statistics(size: int) -> None:
    images = natural(size, COUNTS[size])
    noise = KeyedNoise("elastic", 0, 1, torch.arange(len(images)))
    for level, share in enumerate((0.05, 0.065, 0.085, 0.1, 0.12), start=1):
        amplitude = 250 * share * 0.005 * size
        ours = statistics(elastic_transform(images, noise, amplitude, 0.01 * size, 0), images)
        theirs = statistics(changed_by_peer("elastic_transform", images, level), images)
        check_alike(ours, theirs)


def statistics(changed: Tensor, images: Tensor) -> numpy.ndarray:
    """Return mean, deviation, distance from clean, and mean step to the next pixel: (N, 4)."""
    parts = (
        changed.mean((1, 2, 3)),
        changed.std((2, 3)).mean(1),
        (changed - images).abs().mean((1, 2, 3)),
        changed.diff(dim=3).abs().mean((1, 2, 3)),
    )
    return 255 * torch.stack(parts, 1).double().numpy()


def check_alike(ours: numpy.ndarray, theirs: numpy.ndarray) -> None:
    """Means agree to 1.5 grey values, for its rounding, and what chance explains (4.5 sigma)."""
    differences = ours - theirs  # (N, 4), image by image
    chance = differences.std(0, ddof=1) / numpy.sqrt(len(ours))
    assert (numpy.abs(differences.mean(0)) < 1.5 + 4.5 * chance).all(), (ours, theirs)


@pytest.mark.parametrize("angle", [-45.0, -100.0, 12.3])
def test_motion_along_an_angle_agrees_pixel_by_pixel(angle: float) -> None:
    module = pytest.importorskip("imagecorruptions.corruptions")
    images = natural(224, 1)
    image = images[0].permute(1, 2, 0).numpy()
    theirs = module._motion_blur(image, radius=15, sigma=8, angle=angle)
    ours = motion_blurred(images, torch.tensor([angle]), 15, 8)[0].permute(1, 2, 0)
    numpy.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(("deviation", "smoothing"), [(0.3, 4.0), (0.3, 1.0), (0.1, 0.7)])
def test_light_on_water_agrees_with_opencv(deviation: float, smoothing: float) -> None:
    cv2 = pytest.importorskip("cv2")
    raw = KeyedNoise("some", 0, 1, torch.arange(1)).paired_normal((1, 224, 224)) * deviation + 0.65
    liquid = gaussian_filtered(raw, smoothing)
    depth = (liquid * (liquid >= 0.68) * 255).clamp(0, 255).floor()
    edges = cv2.Canny(depth[0, 0].byte().numpy(), 50, 150)
    numpy.testing.assert_array_equal(canny(depth, 50, 150)[0, 0] * 255, edges)
    far = cv2.distanceTransform(255 - edges, cv2.DIST_L2, cv2.DIST_MASK_PRECISE).clip(max=20)
    even = cv2.equalizeHist((cv2.blur(far, (3, 3)) + 1e-4).astype(numpy.uint8))
    kernel = numpy.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    theirs = cv2.blur(cv2.filter2D(even, cv2.CV_8U, kernel), (3, 3))
    assert numpy.abs(highlights(depth)[0, 0].numpy() - theirs).mean() < 0.5
