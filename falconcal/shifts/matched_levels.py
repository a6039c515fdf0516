"""Levels that cost a reference model as much accuracy as is asked for, whatever the family.

Strengths of different families cannot be compared; accuracies can. A level is matched by where the
accuracy of a reference model, taken at the shift's own levels, has fallen to a target.
"""

from collections.abc import Sequence
from itertools import pairwise

from falconcal.shifts.shift import Shift


def matched_strengths(
    shift: Shift, accuracies: Sequence[float], targets: Sequence[float], chance: float
) -> tuple[float, ...]:
    """Return the strengths at which accuracy has fallen to fractions of its way down to chance.

    Accuracy is read off linearly between two levels, at the first crossing; a target that no level
    reaches gives the harshest. A shift whose strengths cannot be interpolated has the level next to
    each target.

    Args:
        shift: The family.
        accuracies: The reference's accuracy at each of the shift's own levels, the clean one first.
        targets: Fractions of the way from chance (0) to the clean accuracy (1).
        chance: Accuracy of a guess.

    Returns:
        One strength per target.

    Example:
        >>> from falconcal import Shift
        >>> from falconcal.shifts import matched_strengths
        >>> darker = Shift("darker", (0.0, 1.0, 2.0), lambda inputs, strength, noise: inputs)
        >>> matched_strengths(darker, (1.0, 0.5, 0.0), targets=(0.75, 0.25), chance=0.0)
        (0.5, 1.5)
    """
    wanted = [chance + (accuracies[0] - chance) * target for target in targets]
    return tuple(_crossing(shift, accuracies, accuracy) for accuracy in wanted)


def _crossing(shift: Shift, accuracies: Sequence[float], wanted: float) -> float:
    steps = zip(pairwise(shift.strengths), pairwise(accuracies), strict=True)
    for (low, high), (before, after) in steps:
        if after <= wanted:
            if not shift.graded:
                return high
            passed = (before - wanted) / (before - after) if before > after else 1.0
            return low + max(passed, 0.0) * (high - low)  # below 0: a model worse than a guess
    return shift.strengths[-1]
