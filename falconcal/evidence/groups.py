"""Any metric by group, such as a class, a site or a device: with intervals, the worst first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from falconcal.errors import UserError, described
from falconcal.evidence.intervals import AnyMetric, Interval, find_metric, interval
from falconcal.metrics import Metric
from falconcal.metrics.predictions import Data, Predictions, as_record


@dataclass(frozen=True)
class Group:
    """A metric of one group of examples.

    Example:
        >>> from falconcal.evidence import by_group
        >>> [group] = by_group(([[0.9, 0.1], [0.8, 0.2]], [0, 0]), ["north", "north"], "accuracy")
        >>> group.name, group.examples, group.interval.value
        ('north', 2, 1.0)
    """

    name: str
    """The group, as text."""
    examples: int
    """How many examples are in it."""
    interval: Interval
    """The metric with its bounds."""


def by_group(
    data: Data, groups: Sequence[object], metric: AnyMetric, *, seed: int = 0
) -> list[Group]:
    """Return a metric of each group with its interval, the worst group first.

    Args:
        data: Predictions, scores, or a pair of probabilities (N, C) and labels (N,).
        groups: The group of each example, (N,): a list or an array of anything that can be printed.
        metric: A name of ``METRICS``, a ``Metric``, or a function of scores.
        seed: Of the resamples of the intervals.

    Returns:
        One entry per group, the worst first by the metric's direction.

    Raises:
        UsageError: If the metric has another name than those of ``METRICS``.
        UserError: If there is not one group per example, or the data lacks what the metric needs.

    Example:
        >>> from falconcal.evidence import by_group
        >>> data = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], [0, 0, 1, 0]
        >>> found = by_group(data, ["north", "north", "south", "south"], "accuracy")
        >>> [(group.name, group.interval.value) for group in found]
        [('south', 0.5), ('north', 1.0)]
    """
    record = find_metric(metric)
    data, groups = as_record(data), listed_groups(groups)
    if len(groups) != len(data):
        raise UserError(f"expected one group per example ({len(data)}), got {len(groups)}.")
    if isinstance(data, Predictions) and "all_classes" not in record.needs:
        data = data.scores()  # once, not for each group
    members: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(str(group), []).append(number)
    found = [
        Group(name, len(inside), interval(data.take(torch.tensor(inside)), record, seed=seed))
        for name, inside in members.items()
    ]
    return sorted(found, key=lambda group: _badness(record, group.interval.value), reverse=True)


def listed_groups(groups: object) -> list[object]:
    """Return the group of each example, from a list or an array, as plain Python values."""
    if isinstance(groups, str | bytes | type) or not isinstance(groups, Iterable):
        raise UserError(f"expected one group per example, got {described(groups)}.")
    return groups.tolist() if hasattr(groups, "tolist") else list(groups)


def _badness(metric: Metric, value: float) -> float:
    if metric.better == "nearer":
        return abs(value - (metric.best or 0.0))
    return -value if metric.better == "higher" else value
