"""Telling outliers from in-domain examples by confidence or by entropy.

In-domain examples are the positives; a score is high where the model feels at home, so entropy
enters with its sign turned. Hendrycks & Gimpel, ICLR 2017, for the three figures.
"""

from dataclasses import dataclass
from typing import Literal

import numpy
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from falconcal.errors import UserError
from falconcal.metrics.scored import scores_of
from falconcal.predictions import Data

Signal = Literal["confidence", "entropy"]
SIGNALS: tuple[Signal, ...] = ("confidence", "entropy")


@dataclass(frozen=True)
class OutlierDetection:
    """How well a signal tells in-domain from outliers."""

    auroc: float  # area under the ROC curve: 0.5 is chance
    aupr: float  # average precision, in-domain as positives
    fpr_at_95: float  # share of outliers let in where 95 % of in-domain examples are


def outlier_detection(
    inside: Data, outside: Data, signal: Signal = "confidence"
) -> OutlierDetection:
    """Compare in-domain examples with outliers by one signal."""
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
    """Return how much at home the model feels with each example: (N,)."""
    scores = scores_of(data)
    if signal == "confidence":
        return scores.confidence.double().numpy()
    if signal == "entropy":
        return -scores.entropy.double().numpy()
    raise UserError(f"expected the signal confidence or entropy, got {signal!r}.")
