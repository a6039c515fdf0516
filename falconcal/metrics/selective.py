"""Selective prediction: answer where confidence is high, and count the errors among answers.

El-Yaniv & Wiener, "On the foundations of noise-free selective classification", JMLR 2010;
the area under the curve as in Geifman, Uziel & El-Yaniv, ICLR 2019; a bounded risk as in Geifman &
El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Annotated

import torch
from pydantic import Field
from scipy import stats
from torch import Tensor

from falconcal.errors import UsageError, UserError
from falconcal.metrics.scored import labelled_answers, takes_arrays
from falconcal.predictions import Predictions, Scores
from falconcal.settings import Count, settings

PARTS = 20  # of the validation examples, at whose edges thresholds stand
CERTAINTY = 0.95  # that the error of accepted examples is below its bound


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Error among the answered at each coverage, the most confident answered first."""

    coverage: Tensor  # (N,), 1/N to 1
    risk: Tensor  # (N,)
    threshold: Tensor  # (N,), the confidence of the last that is answered


@takes_arrays
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


@takes_arrays
def area_under_risk_coverage(data: Predictions | Scores) -> float:
    """Mean error over all coverages: 0 is best."""
    return float(risk_coverage_curve(data).risk.mean())


@takes_arrays
def accuracy_at_coverage(data: Predictions | Scores, coverage: float) -> float:
    """Accuracy among the most confident share of the examples."""
    if not isinstance(coverage, Real) or not 0 < coverage <= 1:
        raise UserError(f"expected a coverage above 0 and at most 1, got {coverage!r}.")
    risk = risk_coverage_curve(data).risk
    answered = max(1, round(coverage * len(risk)))
    return float(1 - risk[answered - 1])


@settings
class RiskTable:
    """How often the answers above some thresholds were wrong, and what may be said from that.

    The thresholds stand at fixed shares of the validation examples, so given a threshold the
    accepted ones are drawn independently and their errors are binomial. The bounds of Clopper and
    Pearson are taken at 1 - (1 - certainty) / considered each (Bonferroni): with that certainty all
    of them hold at once, so any risk may be asked for, and as often as one likes.
    """

    thresholds: Annotated[tuple[float, ...], Field(min_length=1, strict=False)]
    accepted: Annotated[tuple[int, ...], Field(strict=False)]  # with at least that confidence
    errors: Annotated[tuple[int, ...], Field(strict=False)]  # among the accepted
    considered: Count = PARTS  # thresholds, those that fell together counted each

    def upper_bounds(self, certainty: float = CERTAINTY) -> list[float]:
        """Return bounds of the error among the accepted, one per threshold."""
        _check_share("certainty", certainty)
        alone = 1 - (1 - certainty) / self.considered
        return [
            1.0 if wrong == count else float(stats.beta.ppf(alone, wrong + 1, count - wrong))
            for count, wrong in zip(self.accepted, self.errors, strict=True)
        ]

    def threshold(self, risk: float, certainty: float = CERTAINTY) -> float:
        """Return the confidence from which on to accept, as many as the risk allows."""
        _check_share("risk", risk)
        bounds = self.upper_bounds(certainty)
        allowed = [kept for kept, bound in zip(self._rows(), bounds, strict=True) if bound <= risk]
        if not allowed:
            raise UserError(self._impossible(risk, min(bounds), certainty))
        return max(allowed)[1]

    def _rows(self) -> list[tuple[int, float]]:
        return list(zip(self.accepted, self.thresholds, strict=True))

    def _impossible(self, risk: float, least: float, certainty: float) -> str:
        alone = (1 - certainty) / self.considered
        needed = math.ceil(math.log(alone) / math.log1p(-risk))
        return (
            f"no threshold keeps the error at {risk:g} with {certainty:.0%} certainty: the lowest "
            f"that the {max(self.accepted):,} validation examples vouch for is {least:.3g}. Ask "
            f"for more than that, or save the model with more validation data: {needed:,} accepted "
            "examples without an error are the least."
        )


def _check_share(name: str, share: float) -> None:
    if not isinstance(share, Real) or not 0 < share < 1:
        raise UsageError(f"expected a {name} above 0 and below 1, got {share!r}.")


@takes_arrays
def risk_table(data: Predictions | Scores) -> RiskTable:
    """Return thresholds at every twentieth of the examples with the errors among the accepted."""
    answers = labelled_answers(data, "the risk table")
    confidence, order = answers.confidence.double().sort(descending=True, stable=True)
    wrong = (~answers.correct[order]).long().cumsum(0)  # (N,)
    rows = {}
    for part in range(1, PARTS):
        # the example at the edge sets the threshold and is not accepted: it is no random draw
        edge = float(confidence[math.ceil(len(confidence) * part / PARTS) - 1])
        accepted = int((confidence > edge).sum())
        if accepted:
            rows[math.nextafter(edge, math.inf)] = (accepted, int(wrong[accepted - 1]))
    rows[0.0] = (len(wrong), int(wrong[-1]))
    counts, errors = zip(*rows.values(), strict=True)
    return RiskTable(thresholds=tuple(rows), accepted=counts, errors=errors)
