"""Evidence: intervals, tests and comparisons beside every figure."""

from falconcal.evidence.comparisons import (
    RankTest,
    holm,
    paired_difference,
    paired_test,
    rank_sum,
    signed_rank,
)
from falconcal.evidence.differences import Difference
from falconcal.evidence.groups import Group, by_group
from falconcal.evidence.intervals import Interval, interval, outlier_interval
from falconcal.evidence.pooled import pooled_difference, pooled_interval

__all__ = [
    "Difference",
    "Group",
    "Interval",
    "RankTest",
    "by_group",
    "holm",
    "interval",
    "outlier_interval",
    "paired_difference",
    "paired_test",
    "pooled_difference",
    "pooled_interval",
    "rank_sum",
    "signed_rank",
]
