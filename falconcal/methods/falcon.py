"""FALCON: fast adversarial calibration.

Tomani & Buettner, "Towards Trustworthy Predictions from Deep Neural Networks with Fast Adversarial
Calibration", AAAI 2021, algorithm 1. Two steps per batch: L_CCE + lambda_S L_S on the clean batch
(equation 2, Adam), then lambda_adv L_adv on its FGSM-perturbed copy (equation 3, plain SGD). Where
the paper and its authors' code differ (forms of the losses, source of the gradient, running
statistics), a setting chooses; the defaults are the code's, but for ``gradient`` and
``statistics``.
"""

from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from falconcal.core.settings import (
    Count,
    Fraction,
    LearningRate,
    NonNegative,
    PositiveFraction,
    Strengths,
    settings,
)
from falconcal.data import Batches, Bounds, ChannelBounds
from falconcal.methods.falcon_directions import DIRECTIONS, check_direction, shift_batch
from falconcal.shifts.fgsm import EPSILONS
from falconcal.training import Objective, Step, TrainingMethod, adam, annealed
from falconcal.training.losses import (
    CalibrationForm,
    EntropyForm,
    calibration_loss,
    predictive_entropy_terms,
)
from falconcal.training.objectives import data_terms
from falconcal.training.step import StatedBounds


def _bounds(value: object) -> object:
    """Read bounds from TOML or JSON, where they are a table of low and high."""
    if isinstance(value, dict) and {"lows", "highs"} <= set(value):
        return ChannelBounds(value["lows"], value["highs"])
    if isinstance(value, dict) and set(value) == {"low", "high"}:
        numbers = all(isinstance(bound, int | float) for bound in value.values())
        return Bounds(**value) if numbers else value
    return value


InputBounds = Annotated[Bounds | Literal["data"] | None, BeforeValidator(_bounds)]
Direction = Annotated[str, AfterValidator(check_direction)]
# the largest weight of the literal entropy term that stands in for the renormalised one with two
# classes; chosen by benchmarks/binary_entropy.py
TWO_CLASS_WEIGHT = 0.4
Directions = Annotated[tuple[Direction, ...], Field(min_length=1, strict=False)]


@settings
class Falcon(TrainingMethod):
    """Train a classifier whose confidence follows its accuracy under shift.

    Needs the range of the inputs (``bounds``); token models are perturbed at their embedding, which
    is found in the model. A step costs about twice a plain one; ``calibration_fraction`` makes
    training cheaper. The defaults are the paper's where it gives a value, but ``entropy_weight``
    was chosen on validation data of several networks.

    Raises:
        UserError: If the range of the inputs is not known, or they lie outside of it.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.Falcon(epochs=3)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    entropy_weight: NonNegative = 0.1
    """Weight lambda_S of the predictive entropy loss; 0 switches the term off. The paper has 50 on
    MNIST; elsewhere that makes short trainings timid."""
    calibration_weight: NonNegative = 0.02
    """Weight lambda_adv of the calibration loss; at 0 its step changes nothing."""
    calibration_learning_rate: LearningRate = 0.05
    """Step size of plain SGD, which takes the calibration step."""
    entropy_annealing: PositiveFraction = 1.0
    """Fraction of the epochs over which the entropy weight rises linearly to its value."""
    calibration_annealing: PositiveFraction = 0.5
    """Fraction of the epochs over which the calibration weight rises linearly to its value."""
    gradient: Literal["exact", "shared"] = "shared"
    """Where the perturbation's gradient comes from: the clean step, or a pass of its own."""
    calibration_fraction: Fraction = 1.0
    """Fraction of batches that get a calibration step, drawn at random; 0 takes none."""
    epsilons: Strengths = EPSILONS
    """Perturbation sizes epsilon as fractions of the input range; one is drawn per batch."""
    directions: Directions = ("adversarial",)
    """Directions of perturbation; one is drawn per batch. The paper has only the adversarial; names
    of shifts may stand beside it or instead, their strengths drawn from their own levels."""
    shift_levels: Literal["batch", "example"] = "batch"
    """Whether the level of a shift is drawn once per batch or for each example."""
    bins: Count = 10
    """Number M of confidence bins of the calibration loss."""
    statistics: Literal["both", "clean"] = "clean"
    """Which batches BatchNorm's running statistics see: the clean ones, or both."""
    entropy_form: EntropyForm = "renormalised"
    """Form of L_S: ``renormalised`` over the wrong classes (the code), or ``literal``. With two
    classes the renormalised form would be 0, and the literal one at a weight of at most 0.4 stands
    in for it."""
    calibration_form: CalibrationForm = "half_sum"
    """Form of L_adv: ``half_sum`` of squares (the code), or their ``root`` (the paper)."""
    bounds: InputBounds = "data"
    """Range of the inputs: that of the data, a stated one, or None to leave inputs unclipped."""

    def objectives(self) -> list[Objective]:
        clean = Objective(
            "clean",
            partial(clean_falcon_terms, self),
            adam(self),
            keeps_input_gradient=self.gradient == "shared" and "adversarial" in self.directions,
        )
        calibration = Objective(
            "calibration",
            partial(calibration_terms, self),
            partial(torch.optim.SGD, lr=self.calibration_learning_rate, fused=True),
            batch_fraction=self.calibration_fraction,
            reduction="sum",
            perturbs=True,
            updates_running_statistics=self.statistics == "both",
        )
        return [clean, calibration]

    def input_bounds(self, train: Batches) -> StatedBounds:  # noqa: ARG002
        return self.bounds


def clean_falcon_terms(falcon: Falcon, step: Step) -> dict[str, Tensor]:
    """Return L_CCE + lambda_S * L_S on the clean batch, and the L2 penalty."""
    logits = step.logits()  # (N, C)
    weight, form = entropy_of(falcon, logits.shape[1], step.epoch, step.epochs)
    terms = data_terms(falcon, step, logits)
    if weight == 0:
        return {**terms, "entropy": torch.zeros((), device=logits.device)}
    entropy = step.mean(predictive_entropy_terms(logits, step.labels, form))
    return {**terms, "entropy": weight * entropy}


def entropy_of(falcon: Falcon, classes: int, epoch: int, epochs: int) -> tuple[float, EntropyForm]:
    """Return the weight of L_S in an epoch, and its form.

    With two classes there is one wrong class, and the renormalised form is exactly 0. The literal
    one stands in for it then, at a weight of at most ``TWO_CLASS_WEIGHT``: it takes probability
    from the true class, as a smoothed label does.
    """
    weight, form = falcon.entropy_weight, falcon.entropy_form
    if classes == 2 and form == "renormalised":
        weight, form = min(weight, TWO_CLASS_WEIGHT), "literal"
    return annealed(weight, epoch, epochs, falcon.entropy_annealing), form


def calibration_terms(falcon: Falcon, step: Step) -> dict[str, Tensor]:
    """Return lambda_adv * L_adv on the perturbed batch."""
    logits = step.logits_at(perturbed(falcon, step))  # (N, C)
    weight = annealed(
        falcon.calibration_weight, step.epoch, step.epochs, falcon.calibration_annealing
    )
    loss = calibration_loss(
        logits,
        step.labels,
        falcon.bins,
        falcon.calibration_form,
        step.processes.total,
        step.weights,
    )
    return {"calibration": weight * loss}


def perturbed(falcon: Falcon, step: Step) -> Tensor:
    """Return the batch moved by an epsilon in a direction, both drawn once per batch."""
    epsilon = falcon.epsilons[_draw(len(falcon.epsilons), step)]
    direction = falcon.directions[_draw(len(falcon.directions), step)]
    if direction not in DIRECTIONS:
        return shift_batch(step, direction, per_example=falcon.shift_levels == "example")
    return DIRECTIONS[direction](step, epsilon)


def _draw(choices: int, step: Step) -> int:
    return int(torch.randint(choices, (), generator=step.random))
