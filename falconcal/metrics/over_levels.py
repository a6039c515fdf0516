"""Figures of a whole shift, from the scores of its levels, the clean one first."""

from collections.abc import Sequence

import numpy

from falconcal.errors import UserError, described
from falconcal.metrics.calibration import BINS, expected_calibration_error
from falconcal.metrics.metric import Metric
from falconcal.metrics.metric_inputs import scores_of
from falconcal.metrics.predictions import Data, Scores

LevelScores = Sequence[Data]


def micro_ece(levels: LevelScores, bins: int = BINS) -> float:
    """One ECE over all levels of a shift pooled, the clean one included: the paper's figure.

    Overconfidence at one level can cancel underconfidence at another; ``macro_ece`` stands beside
    it for that reason.

    Args:
        levels: A list with the predictions or scores of each level, the clean one first.
        bins: How many bins of equal width; at least 1.

    Returns:
        The error, from 0 (best) to 1.

    Raises:
        UserError: If ``levels`` is not such a list or is empty, or an example has no true class.

    Example:
        Both levels fall into one bin of confidence 0.75, of which half is right: |0.5 - 0.75|.

        >>> from falconcal.metrics import Predictions, micro_ece
        >>> clean = Predictions.from_probabilities([[0.75, 0.25]], [0])
        >>> shifted = Predictions.from_probabilities([[0.75, 0.25]], [1])
        >>> micro_ece([clean, shifted])
        0.25
    """
    _check_levels(levels)
    return expected_calibration_error(
        Scores.concatenate([scores_of(level) for level in levels]), bins
    )


def macro_ece(levels: LevelScores, bins: int = BINS) -> float:
    """Mean of the ECEs of a shift's levels, between which nothing cancels.

    Args:
        levels: A list with the predictions or scores of each level, the clean one first.
        bins: How many bins of equal width; at least 1.

    Returns:
        The error, from 0 (best) to 1.

    Raises:
        UserError: If ``levels`` is not such a list or is empty, or an example has no true class.

    Example:
        The ECE is 0.25 on the clean data and 0.75 on the shifted.

        >>> from falconcal.metrics import Predictions, macro_ece
        >>> clean = Predictions.from_probabilities([[0.75, 0.25]], [0])
        >>> shifted = Predictions.from_probabilities([[0.75, 0.25]], [1])
        >>> macro_ece([clean, shifted])
        0.5
    """
    return float(numpy.mean(level_curve(levels, bins)))


def area_under_levels(levels: LevelScores, bins: int = BINS) -> float:
    """Area under the ECE by level of a shift, the levels scaled to length 1.

    By the trapezoid rule: the first and the last level count half.

    Args:
        levels: A list with the predictions or scores of each level, the clean one first.
        bins: How many bins of equal width; at least 1.

    Returns:
        The area, from 0 (best) to 1.

    Raises:
        UserError: If ``levels`` is not such a list or is empty, or an example has no true class.

    Example:
        ECE 0.25, 0.75 and 0.75 at three levels: (0.25 / 2 + 0.75 + 0.75 / 2) / 2.

        >>> from falconcal import Predictions
        >>> from falconcal.metrics import area_under_levels
        >>> clean = Predictions.from_probabilities([[0.75, 0.25]], [0])
        >>> shifted = Predictions.from_probabilities([[0.75, 0.25]], [1])
        >>> area_under_levels([clean, shifted, shifted])
        0.625
    """
    errors = level_curve(levels, bins)
    return float(numpy.trapezoid(errors, dx=1 / max(1, len(errors) - 1)))


def level_curve(levels: LevelScores, bins: int = BINS) -> list[float]:
    """Return the ECE of each level of a shift.

    Args:
        levels: A list with the predictions or scores of each level, the clean one first.
        bins: How many bins of equal width; at least 1.

    Returns:
        One error per level, in their order.

    Raises:
        UserError: If ``levels`` is not such a list or is empty, or an example has no true class.

    Example:
        >>> from falconcal import Predictions
        >>> from falconcal.metrics import level_curve
        >>> clean = Predictions.from_probabilities([[0.75, 0.25]], [0])
        >>> shifted = Predictions.from_probabilities([[0.75, 0.25]], [1])
        >>> level_curve([clean, shifted])
        [0.25, 0.75]
    """
    _check_levels(levels)
    return [expected_calibration_error(level, bins) for level in levels]


def _check_levels(levels: LevelScores) -> None:
    if not isinstance(levels, list | tuple):
        raise UserError(
            "expected a list with the predictions or scores of each level, the clean one first, "
            f"got {described(levels)}."
        )
    if not levels:
        raise UserError("expected the scores of at least one level, got none.")


POOLED: dict[str, Metric] = {
    "micro_ece": Metric(micro_ece, "micro-averaged ECE", needs=("labels", "levels", "bins")),
    "macro_ece": Metric(macro_ece, "macro-averaged ECE", needs=("labels", "levels", "bins")),
    "ece_area": Metric(area_under_levels, "area under ECE", needs=("labels", "levels", "bins")),
}
"""The figures of a whole shift by name; their functions take a list of the levels' scores."""
