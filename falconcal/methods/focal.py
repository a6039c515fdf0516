"""Focal loss: cross-entropy that lets go of examples already answered well.

Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, equation 4; Mukhoti et al.,
"Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020, on calibration and gamma 3.
"""

from functools import partial

from torch import Tensor, nn

from falconcal.core.settings import NonNegative, settings
from falconcal.data import Batches
from falconcal.methods.l2_dropout import adam, l2_terms
from falconcal.training import Objective, Step, TrainingMethod, fit_objectives
from falconcal.training.losses import focal_loss


@settings
class Focal(TrainingMethod):
    """Settings of the focal loss."""

    gamma: NonNegative = 3.0  # 0 is plain cross-entropy

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        bounds = getattr(train, "bounds", None)
        return fit_objectives(model, train, validation, self.objectives(), self, bounds)

    def objectives(self) -> list[Objective]:
        return [Objective("focal", partial(focal_terms, self), adam(self))]


def focal_terms(method: Focal, step: Step) -> dict[str, Tensor]:
    """Return the focal loss of the batch, and L2 where asked for."""
    loss = focal_loss(step.logits(), step.labels, method.gamma)
    return {"focal": loss, **l2_terms(method, step)}
