"""CIFAR-10's augmentation: worked by hand, against SciPy, and keyed by seed, epoch and batch."""

import math
from pathlib import Path

import numpy
import scipy.ndimage
import torch

from falconcal.data import load_dataset
from falconcal.data.augmentation import rotate_translate_flip, warped
from tests.helpers.official_layouts import write_cifar10

NONE, ONE = torch.zeros(1), torch.ones(1)


def test_no_turn_is_the_image_and_a_mirror_its_reverse() -> None:
    image = torch.rand(1, 3, 8, 8)
    torch.testing.assert_close(warped(image, NONE, ONE, NONE, NONE), image)
    torch.testing.assert_close(warped(image, NONE, -ONE, NONE, NONE), image.flip(3))


def test_a_quarter_of_the_width_is_a_move_by_whole_pixels() -> None:
    image = torch.rand(1, 1, 8, 8)
    moved = warped(image, NONE, ONE, NONE, torch.tensor([0.5]))  # a quarter: two pixels
    torch.testing.assert_close(moved[..., :6], image[..., 2:])
    torch.testing.assert_close(moved[..., 6:], image[..., 7:].expand(1, 1, 8, 2))


def test_turns_are_scipys() -> None:
    image, angle = torch.rand(1, 1, 9, 9), math.radians(10)
    turned = warped(image, torch.tensor([angle]), ONE, NONE, NONE)
    cosine, sine = math.cos(angle), math.sin(angle)
    matrix = numpy.array([[cosine, sine], [-sine, cosine]])  # of row and column
    centre = numpy.array([4.0, 4.0])
    expected = scipy.ndimage.affine_transform(
        image[0, 0].double().numpy(), matrix, centre - matrix @ centre, order=1, mode="nearest"
    )
    torch.testing.assert_close(
        turned[0, 0], torch.from_numpy(expected).float(), rtol=1e-4, atol=1e-5
    )


def test_strengths_are_the_papers() -> None:
    ramp = torch.linspace(0, 1, 101).expand(400, 1, 101, 101)  # brighter to the right
    centre = rotate_translate_flip(ramp, torch.Generator().manual_seed(0))[:, 0, 50, 50]
    moved = (centre - 0.5) * 100 / 101  # as a share of the width
    assert 0.09 < moved.abs().max() < 0.1001
    assert abs(float(moved.mean())) < 0.01
    across = rotate_translate_flip(ramp, torch.Generator().manual_seed(0))
    slope = across[:, 0, 50, 55] - across[:, 0, 50, 45]
    assert 0.4 < float((slope < 0).float().mean()) < 0.6  # mirrored
    assert float(slope.abs().min()) > 0.1 * math.cos(math.radians(15.1))


def test_training_batches_alone_are_augmented_by_seed_epoch_and_batch(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    cifar = load_dataset("cifar10", path=str(tmp_path))
    plain = load_dataset("cifar10", path=str(tmp_path), augment=False)

    def epoch(seed: int, number: int) -> torch.Tensor:
        batches = cifar.train.batches(20, seed=seed, augment=cifar.augment)
        batches.set_epoch(number)
        return torch.cat([inputs for inputs, _ in batches])

    assert torch.equal(epoch(0, 1), epoch(0, 1))
    assert not torch.equal(epoch(0, 1), epoch(0, 2))
    assert not torch.equal(epoch(0, 1), epoch(1, 1))
    assert epoch(0, 1).shape == (50, 3, 32, 32)
    assert epoch(0, 1).min() >= 0
    assert epoch(0, 1).max() <= 1
    (one,), (other,) = (
        [inputs for inputs, _ in data.training_batches(50, 3)] for data in (cifar, plain)
    )
    assert not torch.equal(one, other)
    assert plain.augment is None
    torch.testing.assert_close(other.sum(), plain.train.inputs.sum())
