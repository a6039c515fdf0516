"""A classifier and a GAN trained together: uniform predictions where the data ends.

Lee, Lee, Lee & Shin, "Training Confidence-calibrated Classifiers for Detecting Out-of-Distribution
Samples", ICLR 2018, algorithm 1. Three steps a batch: the discriminator tells real inputs from made
ones; the generator fools it and makes what the classifier is unsure of; the classifier learns the
labels and to be unsure of what was made. ``fit`` returns the classifier itself.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from falconcal.core.module_state import at_least_float32, frozen_weights, to_model_device
from falconcal.core.settings import Count, LearningRate, NonNegative, settings
from falconcal.data import Batches, Bounds
from falconcal.errors import UserError
from falconcal.methods.falcon import InputBounds
from falconcal.methods.l2_dropout import adam, clean_terms
from falconcal.models.dcgan import Discriminator, Generator
from falconcal.training import (
    Objective,
    Step,
    TrainingMethod,
    fit_objectives,
    unseen_statistics,
)
from falconcal.training.losses import divergence_from_uniform

BETAS = (0.5, 0.999)  # of Adam for both networks of the GAN


@settings
class JointGAN(TrainingMethod):
    """Settings of the joint training; the defaults are the paper's where it says."""

    uniform_weight: NonNegative = (
        1.0  # beta, of KL(U || p) in the steps of generator and classifier
    )
    gan_learning_rate: LearningRate = 2e-4
    latent: Count = 64  # numbers of noise an example
    width: Count = 32  # channels next to the image, twice as many with each halving of its sides
    bounds: InputBounds = "data"  # of the inputs: those of the data, stated ones, or None

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        return fit_objectives(
            model, train, validation, self.objectives(), self, self.bounds, self.auxiliary
        )

    def auxiliary(self, inputs: Tensor, bounds: Bounds | None) -> dict[str, nn.Module]:
        """Return fresh networks for such inputs."""
        if not inputs.is_floating_point():
            raise UserError(
                f"expected floating-point inputs, which a generator can make, got {inputs.dtype}: "
                "joint_gan does not take tokens; convert images with inputs.float()."
            )
        shape = tuple(inputs.shape[1:])
        return {
            "generator": Generator(shape, bounds, self.latent, self.width),
            "discriminator": Discriminator(shape, bounds, self.width),
        }

    def objectives(self) -> list[Objective]:
        gan_adam = partial(torch.optim.Adam, lr=self.gan_learning_rate, betas=BETAS, fused=True)
        return [
            Objective(
                "discriminator",
                partial(discriminator_terms, self),
                gan_adam,
                network="discriminator",
            ),
            Objective("generator", partial(generator_terms, self), gan_adam, network="generator"),
            Objective("classifier", partial(classifier_terms, self), adam(self)),
        ]


def discriminator_terms(method: JointGAN, step: Step) -> dict[str, Tensor]:
    """-log D(x) - log(1 - D(G(z))), D a sigmoid of its score; G is detached."""
    made = generated_inputs(method, step)
    scores = step.auxiliary["discriminator"].wrapped(torch.cat([step.inputs, made]))  # (2N,)
    real, fake = at_least_float32(scores).tensor_split(2)
    return {"real": softplus(-real).mean(), "made": softplus(fake).mean()}


def generator_terms(method: JointGAN, step: Step) -> dict[str, Tensor]:
    """-log D(G(z)) + beta * KL(U || p(.|G(z))); both flow into G, neither D nor p changes."""
    made = step.auxiliary["generator"].wrapped(draw_noise(method, step))
    discriminator, classifier = step.auxiliary["discriminator"].bare, step.itself
    with frozen_weights(discriminator), frozen_weights(classifier), unseen_statistics(classifier):
        scores = discriminator(to_model_device(discriminator, made))  # (N,)
        logits = classifier(to_model_device(classifier, made))  # (N, C)
    uniform = method.uniform_weight * divergence_from_uniform(logits)
    return {"fooled": softplus(-at_least_float32(scores)).mean(), "uniform": uniform}


def classifier_terms(method: JointGAN, step: Step) -> dict[str, Tensor]:
    """L_CCE + beta * KL(U || p(.|G(z))), G detached, and L2 where asked for."""
    terms = clean_terms(method, step)
    with unseen_statistics(step.itself):
        logits = step.itself(to_model_device(step.itself, generated_inputs(method, step)))  # (N, C)
    return {**terms, "uniform": method.uniform_weight * divergence_from_uniform(logits)}


def generated_inputs(method: JointGAN, step: Step) -> Tensor:
    """Return as many inputs as the batch has, made by the generator: (N, ...), no gradient."""
    generator = step.auxiliary["generator"].bare
    with torch.no_grad():
        made: Tensor = generator(to_model_device(generator, draw_noise(method, step)))
    return made.to(step.inputs.dtype)


def draw_noise(method: JointGAN, step: Step) -> Tensor:
    """Return this process's part of the whole batch's noise: (N, latent)."""
    before, whole = step.processes.span(step.inputs)
    noise = torch.randn(whole, method.latent, generator=step.random)
    return noise[before : before + len(step.inputs)].to(step.inputs.device)
