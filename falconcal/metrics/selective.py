"""Selective prediction: answer only where confidence is high, and measure errors among answers.

El-Yaniv & Wiener, "On the foundations of noise-free selective classification", JMLR 2010;
the area under the curve as in Geifman, Uziel & El-Yaniv, ICLR 2019; a bounded risk as in Geifman &
El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Annotated

import scipy  # its parts are loaded when they are first used
import torch
from pydantic import Field
from torch import Tensor

from falconcal.core.settings import Count, settings
from falconcal.errors import UsageError, UserError
from falconcal.metrics.metric_inputs import labelled_answers, takes_arrays
from falconcal.metrics.predictions import Predictions, Scores

RISK_STEPS = 20  # of the validation examples, at whose edges thresholds stand
CERTAINTY = 0.95  # that the error of accepted examples is below its bound


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Error among the answered at each coverage, the most confident answered first; (N,) each.

    Example:
        >>> from falconcal.metrics import risk_coverage_curve
        >>> risk_coverage_curve([[0.9, 0.1], [0.6, 0.4]], [0, 1]).risk.tolist()
        [0.0, 0.5]
    """

    coverage: Tensor
    """The share that is answered, 1/N to 1."""
    risk: Tensor
    """The share of wrong answers among them."""
    threshold: Tensor
    """The confidence of the last that is answered."""


@takes_arrays
def risk_coverage_curve(data: Predictions | Scores) -> RiskCoverage:
    """Error among the k most confident answers, for every k.

    Examples of equal confidence have no order, so each counts with their mean error: the curve does
    not depend on the order of the data.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).

    Returns:
        Coverage, risk and threshold at each k, (N,) each.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        >>> from falconcal.metrics import risk_coverage_curve
        >>> curve = risk_coverage_curve([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        >>> curve.coverage.tolist(), curve.risk.tolist(), curve.threshold.tolist()
        ([0.5, 1.0], [0.0, 0.5], [0.9, 0.6])
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
    """Area under the risk-coverage curve: the mean error over all coverages.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).

    Returns:
        The mean, from 0 (best) to 1.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        The surer one is right, the other wrong: (0 + 1/2) / 2.

        >>> from falconcal.metrics import area_under_risk_coverage
        >>> area_under_risk_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        0.25
    """
    return float(risk_coverage_curve(data).risk.mean())


@takes_arrays
def accuracy_at_coverage(data: Predictions | Scores, coverage: float) -> float:
    """Accuracy when only the most confident share of the examples is answered.

    Args:
        data: Predictions, scores, or probabilities (N, C) followed by labels (N,).
        coverage: The share that is answered, above 0 and at most 1; at least one example is.

    Returns:
        The accuracy among the answered, from 0 to 1.

    Raises:
        UserError: If ``coverage`` is not such a share, there are no examples, or one has no true
            class.

    Example:
        >>> from falconcal.metrics import accuracy_at_coverage
        >>> accuracy_at_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1], coverage=0.5)
        1.0
    """
    if not isinstance(coverage, Real) or not 0 < coverage <= 1:
        raise UserError(f"expected a coverage above 0 and at most 1, got {coverage!r}.")
    risk = risk_coverage_curve(data).risk
    answered = max(1, round(coverage * len(risk)))
    return float(1 - risk[answered - 1])


@settings
class RiskTable:
    """How often the answers above several thresholds were wrong, and the bounds that follow.

    The thresholds stand at fixed shares of the validation examples, so given a threshold the
    accepted ones are drawn independently and their errors are binomial. Each bound of Clopper and
    Pearson is taken at 1 - (1 - certainty) / considered (Bonferroni). With that certainty all of
    them hold at once, so any risk may be asked for, as often as wanted.

    Example:
        100 accepted examples without an error bound the error by 1 - 0.05 ** (1 / 100) = 0.0295.

        >>> from falconcal.metrics import RiskTable
        >>> table = RiskTable(thresholds=(0.0,), accepted=(100,), errors=(0,), considered=1)
        >>> [round(bound, 4) for bound in table.upper_bounds()]
        [0.0295]
        >>> table.threshold(risk=0.05)
        0.0
    """

    thresholds: Annotated[tuple[float, ...], Field(min_length=1, strict=False)]
    """Confidences from which on answers are accepted."""
    accepted: Annotated[tuple[int, ...], Field(strict=False)]
    """How many validation examples have at least each threshold's confidence."""
    errors: Annotated[tuple[int, ...], Field(strict=False)]
    """How many of the accepted are wrong."""
    considered: Count = RISK_STEPS
    """How many thresholds were considered; equal ones count each."""

    def upper_bounds(self, certainty: float = CERTAINTY) -> list[float]:
        """Return an upper bound of the error among the accepted for each threshold.

        Args:
            certainty: The probability with which all bounds hold at once, above 0 and below 1.

        Returns:
            One bound per threshold, from 0 to 1.

        Raises:
            UsageError: If ``certainty`` is not such a number.
        """
        _check_share("certainty", certainty)
        alone = 1 - (1 - certainty) / self.considered
        return [
            1.0 if wrong == count else float(scipy.stats.beta.ppf(alone, wrong + 1, count - wrong))
            for count, wrong in zip(self.accepted, self.errors, strict=True)
        ]

    def threshold(self, risk: float, certainty: float = CERTAINTY) -> float:
        """Return the confidence from which on to accept so that the error stays below a risk.

        Of the thresholds that the bounds allow, the one that accepts most.

        Args:
            risk: The error among accepted answers that is allowed, above 0 and below 1.
            certainty: The probability with which the error stays below it.

        Returns:
            The threshold.

        Raises:
            UsageError: If ``risk`` or ``certainty`` is not such a number.
            UserError: If no threshold keeps the error so low.
        """
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
            f"that the {max(self.accepted):,} validation examples can show is {least:.3g}. Ask for "
            f"more than that, or save the model with more validation data: at least {needed:,} "
            "accepted examples without an error are needed."
        )


def _check_share(name: str, share: float) -> None:
    if not isinstance(share, Real) or not 0 < share < 1:
        raise UsageError(f"expected a {name} above 0 and below 1, got {share!r}.")


@takes_arrays
def risk_table(data: Predictions | Scores) -> RiskTable:
    """Thresholds at every twentieth of the examples, with the errors among the accepted.

    The example at a threshold is not accepted: it set the threshold, so it is no random draw.

    Args:
        data: Predictions or scores of validation examples, or their probabilities and labels.

    Returns:
        The table, which gives thresholds for a bounded risk.

    Raises:
        UserError: If there are no examples, or one has no true class (a label of -1).

    Example:
        >>> import torch
        >>> from falconcal.metrics import risk_table
        >>> sure = torch.linspace(0.5, 1, 200, dtype=torch.float64)
        >>> table = risk_table(torch.stack([sure, 1 - sure], 1), torch.zeros(200).long())
        >>> len(table.thresholds), table.accepted[-1], table.errors[-1]
        (20, 200, 0)
        >>> table.threshold(risk=0.05)
        0.0
    """
    answers = labelled_answers(data, "the risk table")
    confidence, order = answers.confidence.double().sort(descending=True, stable=True)
    wrong = (~answers.correct[order]).long().cumsum(0)  # (N,)
    rows = {}
    for part in range(1, RISK_STEPS):
        # the example at the edge sets the threshold and is not accepted: it is no random draw
        edge = float(confidence[math.ceil(len(confidence) * part / RISK_STEPS) - 1])
        accepted = int((confidence > edge).sum())
        if accepted:
            rows[math.nextafter(edge, math.inf)] = (accepted, int(wrong[accepted - 1]))
    rows[0.0] = (len(wrong), int(wrong[-1]))
    counts, errors = zip(*rows.values(), strict=True)
    return RiskTable(thresholds=tuple(rows), accepted=counts, errors=errors)
