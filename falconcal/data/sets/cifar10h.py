"""CIFAR-10H: what some fifty people each answered to every test image of CIFAR-10.

J. Peterson, R. Battleday, T. Griffiths and O. Russakovsky, ICCV 2019, CC BY-NC-SA 4.0:
``cifar10h-counts.npy`` or ``counts.npy``, answers (10000, 10) in the official order of the images.
A test label is one person's answer, drawn by a seed: so accuracy says how often a person agrees
with the model, and a calibrated confidence is the share of people who agree.
"""

from dataclasses import replace
from typing import Literal

import numpy
import torch

from falconcal.core.settings import Seed, settings
from falconcal.data.dataset import Dataset
from falconcal.data.images import Images
from falconcal.data.locations import require_file
from falconcal.data.sets.cifar10 import CIFAR10_CLASSES, Cifar10
from falconcal.errors import UserError
from falconcal.io.array_files import mapped_array

ANSWER_FOLDERS = ("cifar-10h", "cifar10h")
ANSWER_FILES = ("counts.npy", "cifar10h-counts.npy")
ANSWER_ORIGIN = "the authors' repository, jcpeterson/cifar-10h (cifar10h-counts.npy)"


@settings
class Cifar10H:
    """CIFAR-10 with people's answers as test labels, with settings."""

    labels: Literal["drawn", "most"] = "drawn"
    """One answer per image drawn at random, or what most people answered."""

    seed: Seed = 0
    """The seed of the drawn answers."""

    augment: bool = True
    """Whether training batches are augmented as in the paper."""

    path: str | None = None
    """The folder or the archive of CIFAR-10; by default it is looked for where data is kept."""

    answers: str | None = None
    """The folder of the answers; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        clean = Cifar10(augment=self.augment, path=self.path).load()
        return replace(clean, name="cifar10h", test=self.load_test())

    def load_test(self) -> Images:
        images = Cifar10(path=self.path).load_test()
        counts = human_answers(self.answers)
        if len(counts) != len(images):
            raise UserError(
                f"cifar10h: expected answers to each of the {len(images)} test images of CIFAR-10, "
                f"got {len(counts)}: are both files whole?"
            )
        most = self.labels == "most"
        labels = torch.from_numpy(counts.argmax(1)) if most else drawn_answers(counts, self.seed)
        return replace(images, labels=labels)


def human_answers(path: str | None = None) -> numpy.ndarray:
    """Return how many people gave each answer: (10000, 10) whole numbers."""
    file = require_file("cifar10h", ANSWER_FOLDERS, ANSWER_FILES, path, ANSWER_ORIGIN)
    counts = numpy.array(mapped_array(file))
    if counts.ndim != 2 or counts.shape[1] != len(CIFAR10_CLASSES) or not (counts.sum(1) > 0).all():
        raise UserError(
            f"{file}: expected how many people gave each of {len(CIFAR10_CLASSES)} answers, at "
            f"least one answer per image, got {counts.dtype} {counts.shape}."
        )
    return counts.astype(numpy.int64)


def drawn_answers(counts: numpy.ndarray, seed: int) -> torch.Tensor:
    """Return the answer of one person per image, drawn at random: (N, C) -> (N,)."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.from_numpy(counts).double()
    return torch.multinomial(shares, 1, generator=generator)[:, 0]
