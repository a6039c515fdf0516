"""Any metric by group: class, site, device, customers; with intervals, the worst group first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from falconcal.errors import UserError, described
from falconcal.evidence.intervals import Interval, interval
from falconcal.metrics import CLASS_METRICS
from falconcal.predictions import Data, Predictions, as_record

HIGHER_IS_BETTER = {"accuracy"}
BEST_AT_ZERO = {"signed_gap"}  # too sure above, too timid below


@dataclass(frozen=True)
class Group:
    """A metric of one group."""

    name: str
    examples: int
    interval: Interval


def by_group(data: Data, groups: Sequence[object], metric: str, *, seed: int = 0) -> list[Group]:
    """Return the metric of each group, the worst first; metrics by class need ``Predictions``."""
    data, groups = as_record(data), listed_groups(groups)
    if len(groups) != len(data):
        raise UserError(f"expected one group per example, {len(data)}, got {len(groups)}.")
    if isinstance(data, Predictions) and metric not in CLASS_METRICS:
        data = data.scores()  # once, not a group at a time
    members: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(str(group), []).append(number)
    found = [
        Group(name, len(inside), interval(data.take(torch.tensor(inside)), metric, seed=seed))
        for name, inside in members.items()
    ]
    return sorted(found, key=lambda group: _badness(metric, group.interval.value), reverse=True)


def listed_groups(groups: object) -> list[object]:
    """Return the group of each example, of a list or an array, as plain Python has them."""
    if isinstance(groups, str | bytes | type) or not isinstance(groups, Iterable):
        raise UserError(f"expected one group per example, got {described(groups)}.")
    return groups.tolist() if hasattr(groups, "tolist") else list(groups)


def _badness(metric: str, value: float) -> float:
    if metric in BEST_AT_ZERO:
        return abs(value)
    return -value if metric in HIGHER_IS_BETTER else value
