"""Training: the one loop, its objectives, its records and its checkpoints."""

from falconcal.errors import CollapseWarning
from falconcal.training.checkpoints import checkpointing
from falconcal.training.history import EpochRecord, History, on_epoch
from falconcal.training.losses import calibration_loss, predictive_entropy_loss
from falconcal.training.objectives import Objective, adam, annealed, clean_terms, l2_terms
from falconcal.training.recipe import Recipe
from falconcal.training.step import Step
from falconcal.training.training_method import TrainingMethod

__all__ = [
    "CollapseWarning",
    "EpochRecord",
    "History",
    "Objective",
    "Recipe",
    "Step",
    "TrainingMethod",
    "adam",
    "annealed",
    "calibration_loss",
    "checkpointing",
    "clean_terms",
    "l2_terms",
    "on_epoch",
    "predictive_entropy_loss",
]
