"""Label smoothing: cross-entropy against labels that leave a part to every class.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7;
Müller, Kornblith & Hinton, "When Does Label Smoothing Help?", NeurIPS 2019, on calibration. Per
batch: the mean cross-entropy against (1 - epsilon) y + epsilon / C.
"""

from functools import partial

from torch import Tensor

from falconcal.core.settings import Fraction, settings
from falconcal.training import Objective, Step, TrainingMethod, adam, l2_terms


@settings
class LabelSmoothing(TrainingMethod):
    """Train against smoothed labels, which keeps confidence below 1.

    Works with any model; a step costs as much as a plain one.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.LabelSmoothing(epochs=3, smoothing=0.1)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    smoothing: Fraction = 0.1
    """Fraction epsilon of each label that is spread evenly over all classes; 0 is plain."""

    def objectives(self) -> list[Objective]:
        return [Objective("smoothed", partial(smoothed_terms, self), adam(self))]


def smoothed_terms(method: LabelSmoothing, step: Step) -> dict[str, Tensor]:
    """Return the cross-entropy against smoothed labels, and the L2 penalty."""
    loss = step.cross_entropy(step.logits(), smoothing=method.smoothing)
    return {"cross_entropy": loss, **l2_terms(method, step)}
