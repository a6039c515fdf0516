"""Training: the one loop, its objectives, its records and its checkpoints."""

from falconcal.errors import CollapseWarning
from falconcal.training.checkpoints import checkpointing
from falconcal.training.context import StatedBounds, bounds_of, set_dropout
from falconcal.training.history import EpochRecord, History, on_epoch
from falconcal.training.loop import TrainingMethod, fit_objectives, make_fabric
from falconcal.training.objectives import (
    AuxiliaryNetwork,
    Objective,
    Step,
    TrainingProcesses,
    annealed,
    run_steps,
    unseen_statistics,
)

__all__ = [
    "AuxiliaryNetwork",
    "CollapseWarning",
    "EpochRecord",
    "History",
    "Objective",
    "StatedBounds",
    "Step",
    "TrainingMethod",
    "TrainingProcesses",
    "annealed",
    "bounds_of",
    "checkpointing",
    "fit_objectives",
    "make_fabric",
    "on_epoch",
    "run_steps",
    "set_dropout",
    "unseen_statistics",
]
