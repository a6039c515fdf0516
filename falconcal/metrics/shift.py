"""Figures of a whole shift, from the scores of its levels, the clean one first."""

from collections.abc import Callable, Sequence

import numpy

from falconcal.errors import UserError, described
from falconcal.metrics.calibration import BINS, expected_calibration_error
from falconcal.metrics.scored import scores_of
from falconcal.predictions import Data, Scores

Levels = Sequence[Data]


def micro_ece(levels: Levels, bins: int = BINS) -> float:
    """The paper's figure for a shift: one ECE over all levels pooled, the clean one included."""
    _check_levels(levels)
    return expected_calibration_error(
        Scores.concatenate([scores_of(level) for level in levels]), bins
    )


def macro_ece(levels: Levels, bins: int = BINS) -> float:
    """Mean of the per-level ECEs: over- and underconfidence at different levels cannot cancel."""
    return float(numpy.mean(level_curve(levels, bins)))


def area_under_levels(levels: Levels, bins: int = BINS) -> float:
    """Area under the ECE by level (trapezia), the ladder scaled to length 1."""
    errors = level_curve(levels, bins)
    return float(numpy.trapezoid(errors, dx=1 / max(1, len(errors) - 1)))


def level_curve(levels: Levels, bins: int = BINS) -> list[float]:
    """Return the ECE of each level."""
    _check_levels(levels)
    return [expected_calibration_error(level, bins) for level in levels]


def _check_levels(levels: Levels) -> None:
    if not isinstance(levels, list | tuple):
        raise UserError(
            "expected a list with the predictions or scores of each level, the clean one first, "
            f"got {described(levels)}."
        )
    if not levels:
        raise UserError("expected the scores of at least one level, got none.")


POOLED: dict[str, Callable[[Levels], float]] = {
    "micro_ece": micro_ece,
    "macro_ece": macro_ece,
    "ece_area": area_under_levels,
}
