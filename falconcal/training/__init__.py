"""Training: the one loop, its objectives, its records and its checkpoints."""

from falconcal.training.checkpoints import checkpointing
from falconcal.training.collapse import CollapseWarning
from falconcal.training.history import EpochRecord, History, watching
from falconcal.training.loop import Training, fit_objectives, make_fabric
from falconcal.training.objectives import (
    Companion,
    Objective,
    Processes,
    Step,
    annealed,
    run_steps,
    unseen_statistics,
)
from falconcal.training.preparing import StatedBounds, bounds_of, set_dropout

__all__ = [
    "CollapseWarning",
    "Companion",
    "EpochRecord",
    "History",
    "Objective",
    "Processes",
    "StatedBounds",
    "Step",
    "Training",
    "annealed",
    "bounds_of",
    "checkpointing",
    "fit_objectives",
    "make_fabric",
    "run_steps",
    "set_dropout",
    "unseen_statistics",
    "watching",
]
