"""Selective prediction: answer where confidence is high, and count the errors among answers.

El-Yaniv & Wiener, "On the foundations of noise-free selective classification", JMLR 2010;
the area under the curve as in Geifman, Uziel & El-Yaniv, ICLR 2019.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.metrics.scored import labelled_answers
from falconcal.predictions import Predictions, Scores


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Error among the answered at each coverage, the most confident answered first."""

    coverage: Tensor  # (N,), 1/N to 1
    risk: Tensor  # (N,)
    threshold: Tensor  # (N,), the confidence of the last that is answered


def risk_coverage_curve(data: Predictions | Scores) -> RiskCoverage:
    """Return the error among the k most confident for every k.

    Examples of equal confidence cannot be told apart, so each counts with their mean error: the
    curve does not depend on the order of the data.
    """
    answers = labelled_answers(data, "the risk-coverage curve")
    confidence, order = answers.confidence.double().sort(descending=True)
    wrong = 1 - answers.correct.double()[order]
    group = (confidence.diff(prepend=confidence[:1]) != 0).cumsum(0)  # equal ones together
    shared = (torch.bincount(group, wrong) / torch.bincount(group))[group]
    answered = torch.arange(1, len(wrong) + 1, dtype=torch.float64)
    return RiskCoverage(answered / len(wrong), shared.cumsum(0) / answered, confidence)


def area_under_risk_coverage(data: Predictions | Scores) -> float:
    """Mean error over all coverages: 0 is best."""
    return float(risk_coverage_curve(data).risk.mean())


def accuracy_at_coverage(data: Predictions | Scores, coverage: float) -> float:
    """Accuracy among the most confident share of the examples."""
    if not 0 < coverage <= 1:
        raise UserError(f"expected a coverage above 0 and at most 1, got {coverage}.")
    risk = risk_coverage_curve(data).risk
    answered = max(1, round(coverage * len(risk)))
    return float(1 - risk[answered - 1])
