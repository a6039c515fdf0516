"""Separating outliers from in-domain examples by confidence or by entropy.

In-domain examples are the positives; the score is higher for in-domain inputs, so entropy enters
with its sign turned. The three figures are those of Hendrycks & Gimpel, ICLR 2017.
"""

from dataclasses import dataclass
from typing import Literal

import numpy

from falconcal.errors import UserError
from falconcal.metrics.metric_inputs import scores_of
from falconcal.metrics.predictions import Data

Signal = Literal["confidence", "entropy"]
SIGNALS: tuple[Signal, ...] = ("confidence", "entropy")


@dataclass(frozen=True)
class OutlierDetection:
    """How well a signal separates in-domain examples from outliers.

    Example:
        >>> from falconcal.metrics import outlier_detection
        >>> outlier_detection([[0.9, 0.1]], [[0.6, 0.4]])
        OutlierDetection(auroc=1.0, aupr=1.0, fpr_at_95=0.0)
    """

    auroc: float
    """Area under the ROC curve: how often an in-domain example is surer; 0.5 is chance."""
    aupr: float
    """Average precision, in-domain examples as positives."""
    fpr_at_95: float
    """Share of outliers accepted at the threshold that accepts 95 % of in-domain examples."""


def outlier_detection(
    inside: Data, outside: Data, signal: Signal = "confidence"
) -> OutlierDetection:
    """Measure how well confidence, or entropy, separates in-domain examples from outliers.

    In-domain examples are the positives (Hendrycks & Gimpel, ICLR 2017).

    Args:
        inside: Predictions or scores of in-domain examples, or their probabilities.
        outside: The same of outliers; labels are not needed.
        signal: ``"confidence"``, or ``"entropy"``, which counts with its sign turned.

    Returns:
        AUROC, AUPR, and the false positive rate at 95 % true positives.

    Raises:
        UserError: If there are no examples in one of the two, or the signal is another.

    Example:
        Of the four pairs, the in-domain example is surer in three: AUROC 3/4.

        >>> from falconcal.metrics import outlier_detection
        >>> found = outlier_detection([[0.9, 0.1], [0.7, 0.3]], [[0.8, 0.2], [0.6, 0.4]])
        >>> found.auroc, found.fpr_at_95
        (0.75, 0.5)
    """
    # slow to import, and few need it
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    values = numpy.concatenate([signal_of(inside, signal), signal_of(outside, signal)])
    truth = numpy.zeros(len(values))
    truth[: len(scores_of(inside))] = 1
    false_rate, true_rate, _ = roc_curve(truth, values, drop_intermediate=False)
    return OutlierDetection(
        auroc=float(roc_auc_score(truth, values)),
        aupr=float(average_precision_score(truth, values)),
        fpr_at_95=float(false_rate[numpy.argmax(true_rate >= 0.95)]),
    )


def signal_of(data: Data, signal: Signal) -> numpy.ndarray:
    """Return a score per example that is higher for in-domain inputs: (N,)."""
    scores = scores_of(data)
    if signal == "confidence":
        return scores.confidence.double().numpy()
    if signal == "entropy":
        return -scores.entropy.double().numpy()
    raise UserError(f"expected the signal confidence or entropy, got {signal!r}.")
