"""Measuring a model: under graded shift, or everything about one set of predictions."""

from falconcal.evaluation.assessment import Assessment, MetricValue, assess
from falconcal.evaluation.row_chart import plot_rows
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.evaluation.sets_under_shift import sets_under_shift
from falconcal.evaluation.side_by_side import PairedRow, SideBySide, assess_together
from falconcal.evaluation.under_shift import evaluate, score_together, score_under_shift

__all__ = [
    "Assessment",
    "MetricValue",
    "PairedRow",
    "SideBySide",
    "assess",
    "assess_together",
    "evaluate",
    "plot_rows",
    "score_together",
    "score_under_shift",
    "scores_to_rows",
    "sets_under_shift",
]
