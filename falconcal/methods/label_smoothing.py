"""Label smoothing: cross-entropy against labels that leave a share to every class.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7;
Müller, Kornblith & Hinton, "When Does Label Smoothing Help?", NeurIPS 2019, on calibration.
"""

from functools import partial

from torch import Tensor, nn

from falconcal.core.settings import Fraction, settings
from falconcal.data import Batches
from falconcal.methods.l2_dropout import adam, l2_terms
from falconcal.training import Objective, Step, TrainingMethod, fit_objectives
from falconcal.training.losses import cross_entropy


@settings
class LabelSmoothing(TrainingMethod):
    """Settings of label smoothing."""

    smoothing: Fraction = 0.1  # of each label, spread evenly over all classes

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        bounds = getattr(train, "bounds", None)
        return fit_objectives(model, train, validation, self.objectives(), self, bounds)

    def objectives(self) -> list[Objective]:
        return [Objective("smoothed", partial(smoothed_terms, self), adam(self))]


def smoothed_terms(method: LabelSmoothing, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy against smoothed labels, and L2 where asked for."""
    loss = cross_entropy(step.logits(), step.labels, method.smoothing)
    return {"cross_entropy": loss, **l2_terms(method, step)}
