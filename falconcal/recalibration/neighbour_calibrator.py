"""What calibrators share that compare an example with stored training examples."""

import abc
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import nn

from falconcal.core.layout import to_model_device
from falconcal.core.model_inputs import Inputs
from falconcal.core.settings import Count, Seed, settings
from falconcal.data import Examples
from falconcal.recalibration.calibrator import Calibrator
from falconcal.recalibration.neighbours import Neighbours, stored_neighbours
from falconcal.recalibration.stages import ViewKind, check_stages, find_stages

StageNames = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


@settings
class NeighbourCalibrator(Calibrator):
    """Base of calibrators that look at distances to stored training examples.

    A subclass brings ``observer``, which says what is looked at, and ``learn`` and ``apply``, which
    are given features too.
    """

    observes: ClassVar[bool] = True

    stages: StageNames | None = None
    """Names of the layers to look at, ``input`` and ``logits`` among them; None finds them."""
    views: ViewKind = "grid"
    """How maps and sequences of a stage are seen: on a ``grid`` of 4 x 4 means, ``pooled`` to one
    mean per channel, or ``both``."""
    stored: Count = 2000
    """Training examples that are kept to measure distances to, at most; equally many per class."""
    neighbours: Count = 10
    """k: the distance to the k-th nearest stored example counts."""
    widest: Count = 1024
    """Width above which what a stage gives out is projected at random to that width."""
    half_precision: bool = False
    """Whether the stored examples are kept in float16, half the size."""
    seed: Seed = 0
    """Of the examples that are stored, the ladder's noise and the first weights."""

    @abc.abstractmethod
    def observer(self, model: nn.Module, home: Examples) -> Neighbours:
        """Return the stored examples: those of ``home``, as the model's stages see them."""

    def found_stages(self, model: nn.Module, inputs: Inputs) -> tuple[str, ...]:
        """Return the stages to look at where none are named."""
        return find_stages(model, inputs)

    def stored_home(
        self,
        model: nn.Module,
        home: Examples,
        *,
        k: int,
        labels: bool = False,
        logits: bool = False,
        squared: bool = False,
    ) -> Neighbours:
        """Return the examples of ``home`` to measure distances to, the stages found or checked."""
        first = to_model_device(model, home.head(2).inputs)
        stages = self.stages or self.found_stages(model, first)
        check_stages(model, first, stages)
        return stored_neighbours(
            model,
            home,
            stages,
            k=k,
            labels=labels,
            logits=logits,
            kind=self.views,
            widest=self.widest,
            dtype=torch.float16 if self.half_precision else torch.float32,
            squared=squared,
        )
