"""Any metric by group: class, site, device, customers; with intervals, the worst group first."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from falconcal.errors import UserError
from falconcal.evidence.intervals import Interval, interval
from falconcal.predictions import Predictions, Scores

HIGHER_IS_BETTER = {"accuracy"}


@dataclass(frozen=True)
class Group:
    """A metric of one group."""

    name: str
    examples: int
    interval: Interval


def by_group(
    data: Predictions | Scores, groups: Sequence[object], metric: str, *, seed: int = 0
) -> list[Group]:
    """Return the metric of each group, the worst first."""
    scores = data.scores() if isinstance(data, Predictions) else data
    names = [str(group) for group in groups]
    if len(names) != len(scores):
        raise UserError(f"expected a group an example, {len(scores)}, got {len(names)}.")
    found = []
    for name in dict.fromkeys(names):
        inside = torch.tensor([other == name for other in names]).nonzero()[:, 0]
        part = scores.take(inside)
        found.append(Group(name, len(part), interval(part, metric, seed=seed)))
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    return sorted(found, key=lambda group: -sign * group.interval.value)
