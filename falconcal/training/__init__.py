"""Training: the one loop, its objectives, its records and its checkpoints."""

from falconcal.training.checkpoints import checkpointing
from falconcal.training.history import EpochRecord, History, watching
from falconcal.training.loop import (
    CollapseWarning,
    StatedBounds,
    Training,
    bounds_of,
    fit_objectives,
    make_fabric,
    set_dropout,
)
from falconcal.training.objectives import (
    Companion,
    Objective,
    Processes,
    Step,
    annealed,
    run_steps,
    unseen_statistics,
)

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
