"""Focal loss: cross-entropy that gives less weight to examples already classified well.

Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, equation 4; Mukhoti et al.,
"Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020, on calibration and gamma 3. Per
batch: the mean of -(1 - p_y)^gamma log p_y.
"""

from functools import partial

from torch import Tensor

from falconcal.core.settings import NonNegative, settings
from falconcal.training import Objective, Step, TrainingMethod, adam, l2_terms
from falconcal.training.losses import focal_loss


@settings
class Focal(TrainingMethod):
    """Train with the focal loss, which holds back confidence on easy examples.

    Works with any model; a step costs as much as a plain one.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.Focal(epochs=3, gamma=2.0)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    gamma: NonNegative = 3.0
    """Exponent gamma of (1 - p_y); 0 is plain cross-entropy."""

    def objectives(self) -> list[Objective]:
        return [Objective("focal", partial(focal_terms, self), adam(self))]


def focal_terms(method: Focal, step: Step) -> dict[str, Tensor]:
    """Return the focal loss of the batch, and the L2 penalty."""
    loss = focal_loss(step.logits(), step.labels, method.gamma, step.mean)
    return {"focal": loss, **l2_terms(method, step)}
