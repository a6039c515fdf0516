"""FALCON: fast adversarial calibration.

Tomani & Buettner, "Towards Trustworthy Predictions from Deep Neural Networks with Fast Adversarial
Calibration", AAAI 2021, algorithm 1. Two steps a batch: cross-entropy with the predictive entropy
loss on the clean batch (Adam), then the calibration loss on its FGSM-perturbed copy (plain SGD).
"""

from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from falconcal.core.settings import (
    Count,
    Fraction,
    LearningRate,
    NonNegative,
    PositiveFraction,
    Strengths,
    settings,
)
from falconcal.data import Batches, Bounds
from falconcal.methods.falcon_directions import DIRECTIONS, Direction
from falconcal.methods.l2_dropout import adam, data_terms
from falconcal.shifts.fgsm import EPSILONS
from falconcal.training import Objective, Step, TrainingMethod, annealed, fit_objectives
from falconcal.training.losses import (
    CalibrationForm,
    EntropyForm,
    calibration_loss,
    predictive_entropy_loss,
)


def _bounds(value: object) -> object:
    """Read bounds from TOML or JSON, where they are a table of low and high."""
    if isinstance(value, dict) and set(value) == {"low", "high"}:
        numbers = all(isinstance(bound, int | float) for bound in value.values())
        return Bounds(**value) if numbers else value
    return value


InputBounds = Annotated[Bounds | Literal["data"] | None, BeforeValidator(_bounds)]
Directions = Annotated[tuple[Direction, ...], Field(min_length=1, strict=False)]


@settings
class Falcon(TrainingMethod):
    """Settings of FALCON; the defaults are the paper's where it says."""

    entropy_weight: NonNegative = 50.0  # lambda_S
    calibration_weight: NonNegative = 0.02  # lambda_adv
    calibration_learning_rate: LearningRate = 0.05  # of the second step, its own
    entropy_annealing: PositiveFraction = 1.0  # share of the epochs over which the weight rises
    calibration_annealing: PositiveFraction = 0.5
    gradient: Literal["exact", "shared"] = "shared"  # where the perturbation's gradient comes from
    share: Fraction = 1.0  # of the batches that get the calibration step
    epsilons: Strengths = EPSILONS  # of the input range, one drawn a batch
    directions: Directions = ("adversarial",)  # one drawn a batch; more than one is our addition
    bins: Count = 10
    statistics: Literal["both", "clean"] = "clean"  # which batches BatchNorm's running ones see
    entropy_form: EntropyForm = "renormalised"
    calibration_form: CalibrationForm = "half_sum"
    bounds: InputBounds = "data"  # of the inputs: those of the data, stated ones, or None

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        return fit_objectives(model, train, validation, self.objectives(), self, self.bounds)

    def objectives(self) -> list[Objective]:
        clean = Objective(
            "clean",
            partial(clean_terms, self),
            adam(self),
            keeps_input_gradient=self.gradient == "shared" and "adversarial" in self.directions,
        )
        calibration = Objective(
            "calibration",
            partial(calibration_terms, self),
            partial(torch.optim.SGD, lr=self.calibration_learning_rate, fused=True),
            share=self.share,
            reduction="sum",
            perturbs=True,
            updates_running_statistics=self.statistics == "both",
        )
        return [clean, calibration]


def clean_terms(falcon: Falcon, step: Step) -> dict[str, Tensor]:
    """L_CCE + lambda_S * L_S on the clean batch, and L2 where asked for."""
    logits = step.logits()  # (N, C)
    weight = annealed(falcon.entropy_weight, step.epoch, step.epochs, falcon.entropy_annealing)
    entropy = predictive_entropy_loss(logits, step.labels, falcon.entropy_form)
    return {**data_terms(falcon, step, logits), "entropy": weight * entropy}


def calibration_terms(falcon: Falcon, step: Step) -> dict[str, Tensor]:
    """lambda_adv * L_adv on the perturbed batch."""
    logits = step.logits_at(perturbed(falcon, step))  # (N, C)
    weight = annealed(
        falcon.calibration_weight, step.epoch, step.epochs, falcon.calibration_annealing
    )
    total = step.processes.total
    loss = calibration_loss(logits, step.labels, falcon.bins, falcon.calibration_form, total)
    return {"calibration": weight * loss}


def perturbed(falcon: Falcon, step: Step) -> Tensor:
    """Return the batch moved by an epsilon in a direction, both drawn for the whole batch."""
    epsilon = falcon.epsilons[_draw(len(falcon.epsilons), step)]
    direction = falcon.directions[_draw(len(falcon.directions), step)]
    return DIRECTIONS[direction](step, epsilon)


def _draw(choices: int, step: Step) -> int:
    return int(torch.randint(choices, (), generator=step.random))
