"""One-curve isotonic regression: one rising curve for all classes, which keeps their order.

Zhang, Kailkhura & Han, "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration
in Deep Learning", ICML 2020, section 3.2 (IRM). All pairs of a probability and whether its class is
true, N times C of them, are fitted by one isotonic curve f; what comes out is ``f(p) + 1e-9 p``,
renormalised. The second term makes the curve rise everywhere, so the predicted class stays, where
a curve per class (``Isotonic``) can change it; and one curve needs fewer examples.
"""

from typing import ClassVar

from torch import Tensor

from falconcal.core.settings import settings
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import Calibrator, one_vs_rest, renormalised
from falconcal.recalibration.isotonic import interpolated, rising_curve

SLOPE = 1e-9  # what makes level stretches rise


@settings
class OneCurveIsotonic(Calibrator):
    """One rising curve for the probabilities of all classes, from validation data.

    The predicted class never changes.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.OneCurveIsotonic()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("points", "values")  # (K,), (K,)

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        probs, truth = log_probs.exp().T, one_vs_rest(labels, log_probs.shape[1])  # (C, N)
        each = None if weights is None else weights.expand_as(probs).flatten()
        points, values = rising_curve(probs.flatten(), truth.flatten(), each)
        return {"points": points, "values": values}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        probs = log_probs.exp()  # (N, C)
        points, values = parameters["points"][None], parameters["values"][None]
        curve = interpolated(probs.reshape(1, -1), points, values).reshape(probs.shape)
        return renormalised(curve + SLOPE * probs)
