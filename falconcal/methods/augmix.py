"""AugMix: predictions on an image and on mixtures of augmentations of it are made to agree.

Hendrycks, Mu, Cubuk, Zoph, Gilmer & Lakshminarayanan, "AugMix: A Simple Data Processing Method to
Improve Robustness and Uncertainty", ICLR 2020. A mixture: three chains of one to three operations,
``x' = (1 - m) x + m sum_i w_i chain_i(x)``, w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1), per image. The
loss: CE(x, y) + lambda times the mean of KL(p_j || M) over the clean image and two mixtures, M the
mean of the three predictions; one pass over the tripled batch.

The paper's geometric operations are near the affine shifts that the FALCON paper tests, so they are
off unless asked for, and a study that tests affine shifts refuses them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy
import torch
from torch import Tensor

from falconcal.core.model_inputs import join_inputs, main_of, with_main
from falconcal.core.module_state import at_least_float32
from falconcal.core.settings import Fraction, NonNegative, settings
from falconcal.data import Batches, Bounds
from falconcal.errors import UserError
from falconcal.methods.augmix_operations import (
    GEOMETRIC_OPERATIONS,
    PLAIN_OPERATIONS,
    Operation,
)
from falconcal.methods.falcon import InputBounds
from falconcal.shifts import SHIFT_GROUPS
from falconcal.training import Objective, Step, TrainingMethod, adam, l2_terms
from falconcal.training.step import StatedBounds

CHAINS, DEEPEST, MIXTURES = 3, 3, 2


@settings
class AugMix(TrainingMethod):
    """Train so that augmented images get the predictions of the clean ones.

    Needs images (N, channels, H, W) and their range (``bounds``); a step costs about three times a
    plain one, and the augmentation.

    Raises:
        UserError: If the inputs are no images, or their range is not known.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.AugMix(epochs=3)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    strength: Fraction = 0.3
    """Highest strength of an operation; the paper's severity 3 of 10. 0 changes nothing."""
    agreement_weight: NonNegative = 12.0
    """Weight lambda of the divergence between predictions; 0 trains on clean images alone."""
    geometric: bool = False
    """Whether rotation, shear and translation are among the operations."""
    bounds: InputBounds = "data"
    """The range of the inputs; ``"data"`` takes it from the training data."""

    def objectives(self) -> list[Objective]:
        return [Objective("augmented", partial(augmix_terms, self), adam(self))]

    def input_bounds(self, train: Batches) -> StatedBounds:  # noqa: ARG002
        return self.bounds

    @property
    def trained_shifts(self) -> tuple[str, ...]:
        """The shifts that training has seen, or their kin, so that no study tests them."""
        return SHIFT_GROUPS["affine"] if self.geometric else ()


def augmix_terms(method: AugMix, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy of the clean batch, the divergence, and the L2 penalty."""
    mixtures = [mixture(method, step) for _ in range(MIXTURES)]
    labels = torch.cat([step.labels] * (1 + MIXTURES))
    copies = [with_main(step.inputs, mixed) for mixed in mixtures]
    whole = replace(step, inputs=join_inputs([step.inputs, *copies]), labels=labels)
    clean, *others = whole.logits().chunk(1 + MIXTURES)
    return {
        "cross_entropy": step.cross_entropy(clean),
        "agreement": method.agreement_weight * divergence_from_mean([clean, *others]),
        **l2_terms(method, step),
    }


def divergence_from_mean(logits: Sequence[Tensor]) -> Tensor:
    """Return the mean of KL(p_j || M), M the mean of the distributions p_j: (N, C) each."""
    log_probs = at_least_float32(torch.stack(list(logits))).log_softmax(2)  # (J, N, C)
    mean = log_probs.logsumexp(0) - math.log(len(logits))  # (N, C)
    return (log_probs.exp() * (log_probs - mean)).sum(2).mean()


def mixture(method: AugMix, step: Step) -> Tensor:
    """Return (1 - m) x + m sum_i w_i chain_i(x) of every image of the batch."""
    bounds = _bounds(step)
    pixels = (main_of(step.inputs) - bounds.low) / bounds.range
    count = len(pixels)
    random = _numpy_random(step.random)
    shares = random.dirichlet([1.0] * CHAINS, count)  # (N, CHAINS)
    blended = torch.zeros_like(pixels)
    for chain in range(CHAINS):
        share = torch.from_numpy(shares[:, chain]).to(pixels)[:, None, None, None]
        blended += share * chained(method, pixels, random)
    m = torch.from_numpy(random.beta(1.0, 1.0, count)).to(pixels)[:, None, None, None]
    return bounds.low + bounds.range * torch.lerp(pixels, blended, m)


def chained(method: AugMix, pixels: Tensor, random: numpy.random.Generator) -> Tensor:
    """Return one to three operations in turn, drawn for each image."""
    operations = PLAIN_OPERATIONS + (GEOMETRIC_OPERATIONS if method.geometric else ())
    depths = torch.from_numpy(random.integers(1, DEEPEST + 1, len(pixels))).to(pixels.device)
    for step in range(DEEPEST):
        changed = one_operation(operations, pixels, method.strength, random)
        pixels = torch.where((depths > step)[:, None, None, None], changed, pixels)
    return pixels


def one_operation(
    operations: Sequence[Operation],
    pixels: Tensor,
    strength: float,
    random: numpy.random.Generator,
) -> Tensor:
    """Return every image under one operation, drawn with its strength and direction."""
    which = random.integers(len(operations), size=len(pixels))
    strengths = strength * random.uniform(0.1, 1, len(pixels)) * random.choice([-1, 1], len(pixels))
    found = pixels.clone()
    for number, operation in enumerate(operations):
        rows = torch.from_numpy(numpy.flatnonzero(which == number)).to(pixels.device)
        if len(rows):
            own = torch.from_numpy(strengths[which == number]).to(pixels)
            found[rows] = operation(pixels[rows], own)
    return found


def _numpy_random(generator: torch.Generator) -> numpy.random.Generator:
    """Return a source seeded by the batch's own: torch has no Dirichlet that takes a generator."""
    return numpy.random.default_rng(int(torch.randint(2**62, (), generator=generator)))


def _bounds(step: Step) -> Bounds:
    if step.inputs.ndim != 4 or step.bounds is None:
        raise UserError(
            "augmix needs images (N, channels, H, W) and their range, got inputs of shape "
            f"{tuple(step.inputs.shape)} and bounds {step.bounds}: give bounds=Bounds(0, 1)."
        )
    return step.bounds
