"""A classifier and a GAN trained together: uniform predictions where the data ends.

Lee, Lee, Lee & Shin, "Training Confidence-calibrated Classifiers for Detecting Out-of-Distribution
Samples", ICLR 2018, algorithm 1. Three steps per batch: the discriminator separates real inputs
from generated ones, -log D(x) - log(1 - D(G(z))); the generator minimises
-log D(G(z)) + beta KL(U || p(.|G(z))); the classifier minimises L_CCE + beta KL(U || p(.|G(z))).
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from falconcal.core.layout import to_model_device
from falconcal.core.model_inputs import Inputs, call_model, main_of
from falconcal.core.module_state import at_least_float32, frozen_weights
from falconcal.core.settings import Count, LearningRate, NonNegative, settings
from falconcal.data import Batches, Bounds
from falconcal.errors import UserError
from falconcal.methods.falcon import InputBounds
from falconcal.models.dcgan import Discriminator, Generator
from falconcal.training import Objective, Step, TrainingMethod, adam, clean_terms
from falconcal.training.losses import divergence_from_uniform
from falconcal.training.run_steps import unseen_statistics
from falconcal.training.step import StatedBounds

BETAS = (0.5, 0.999)  # of Adam for both networks of the GAN


@settings
class JointGAN(TrainingMethod):
    """Train a classifier to be unsure of what a generator makes at the edge of the data.

    Needs floating-point inputs: images, tables or signals, not tokens; and their range
    (``bounds``). A step trains three networks and costs four to five times a plain one. ``fit``
    returns the classifier; the GAN is in the checkpoints only. The defaults are the paper's where
    it gives a value.

    Raises:
        UserError: If the inputs are tokens, or their range is not known.

    Example:
        >>> import torch
        >>> import falconcal
        >>> inputs = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> data = falconcal.Examples(inputs, (inputs[:, 0] > 0.5).long(), falconcal.Bounds(0, 1))
        >>> method = falconcal.JointGAN(epochs=5, learning_rate=0.1, latent=4, width=4)
        >>> model = method.fit(torch.nn.Linear(4, 2), data.batches(50), data)
        >>> falconcal.accuracy(falconcal.predict(model, data)) > 0.8
        True
    """

    uniform_weight: NonNegative = 1.0
    """Weight beta of KL(U || p) in the steps of generator and classifier; 0 switches it off."""
    gan_learning_rate: LearningRate = 2e-4
    """Step size of Adam for generator and discriminator."""
    latent: Count = 64
    """Number of random numbers z from which the generator makes one input."""
    width: Count = 32
    """Channels at the image's own size; twice as many with each halving of its sides."""
    bounds: InputBounds = "data"
    """Range of the inputs: that of the data, a stated one, or None if it is not limited."""

    def auxiliary(self, inputs: Inputs, bounds: Bounds | None) -> dict[str, nn.Module]:
        """Return a generator of such inputs and a discriminator."""
        if not isinstance(inputs, Tensor):
            raise UserError(
                "expected one tensor of inputs, which a generator can make, got several: joint_gan "
                "does not take such batches; choose another method."
            )
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

    def input_bounds(self, train: Batches) -> StatedBounds:  # noqa: ARG002
        return self.bounds


def discriminator_terms(method: JointGAN, step: Step) -> dict[str, Tensor]:
    """Return -log D(x) - log(1 - D(G(z))), D a sigmoid of its score; G is detached."""
    made = generated_inputs(method, step)
    scores = step.auxiliary["discriminator"].wrapped(
        torch.cat([main_of(step.inputs), made])
    )  # (2N,)
    real, fake = at_least_float32(scores).tensor_split(2)
    return {"real": softplus(-real).mean(), "made": softplus(fake).mean()}


def generator_terms(method: JointGAN, step: Step) -> dict[str, Tensor]:
    """Return -log D(G(z)) + beta * KL(U || p(.|G(z))); only G gets a gradient."""
    made = step.auxiliary["generator"].wrapped(draw_noise(method, step))
    discriminator, classifier = step.auxiliary["discriminator"].unwrapped, step.unwrapped
    seen = unseen_statistics(step.layers_with_statistics)
    with frozen_weights(discriminator), frozen_weights(classifier), seen:
        scores = discriminator(to_model_device(discriminator, made))  # (N,)
        logits = call_model(classifier, to_model_device(classifier, made))  # (N, C)
    uniform = method.uniform_weight * divergence_from_uniform(logits)
    return {"fooled": softplus(-at_least_float32(scores)).mean(), "uniform": uniform}


def classifier_terms(method: JointGAN, step: Step) -> dict[str, Tensor]:
    """Return L_CCE + beta * KL(U || p(.|G(z))), G detached, and the L2 penalty."""
    terms, model = clean_terms(method, step), step.unwrapped
    with unseen_statistics(step.layers_with_statistics):
        made = to_model_device(model, generated_inputs(method, step))
        logits = call_model(model, made)  # (N, C)
    return {**terms, "uniform": method.uniform_weight * divergence_from_uniform(logits)}


def generated_inputs(method: JointGAN, step: Step) -> Tensor:
    """Return as many inputs as the batch has from the generator, without a gradient: (N, ...)."""
    generator = step.auxiliary["generator"].unwrapped
    with torch.no_grad():
        made: Tensor = generator(to_model_device(generator, draw_noise(method, step)))
    return made.to(step.inputs.dtype)


def draw_noise(method: JointGAN, step: Step) -> Tensor:
    """Return this process's part of the whole batch's noise: (N, latent)."""
    before, whole = step.processes.span(step.inputs)
    noise = torch.randn(whole, method.latent, generator=step.random)
    return noise[before : before + len(step.inputs)].to(step.inputs.device)
