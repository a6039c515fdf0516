"""Metrics: pure functions of predictions or scores, and the table of their records.

Adding one: write a function of ``Scores`` that returns a number, in the file of its kind, and add
its record to ``METRICS``. One that needs the probabilities of all classes takes ``Predictions`` and
says so in its record.
"""

import math

from falconcal.metrics.accumulate import Accumulator
from falconcal.metrics.binary import (
    PositiveReliability,
    ThresholdRow,
    average_precision,
    positive_reliability,
    roc_auc,
    threshold_table,
)
from falconcal.metrics.calibration import (
    BINS,
    ReliabilityCurve,
    adaptive_calibration_error,
    classwise_calibration_error,
    equal_mass_curve,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_curve,
    rms_calibration_error,
    signed_gap,
    smooth_calibration_error,
)
from falconcal.metrics.conformal import (
    CONFORMAL_KINDS,
    ConformalSets,
    SetSummary,
    fit_conformal,
)
from falconcal.metrics.metric import Metric, Need
from falconcal.metrics.outlier_detection import OutlierDetection, outlier_detection
from falconcal.metrics.over_levels import (
    POOLED,
    area_under_levels,
    level_curve,
    macro_ece,
    micro_ece,
)
from falconcal.metrics.predictions import LOWEST_LOG, Predictions, Scores
from falconcal.metrics.proper_scores import (
    BrierParts,
    accuracy,
    brier_decomposition,
    brier_score,
    negative_log_likelihood,
)
from falconcal.metrics.selective import (
    RiskCoverage,
    RiskTable,
    accuracy_at_coverage,
    area_under_risk_coverage,
    risk_coverage_curve,
    risk_table,
)
from falconcal.metrics.uncertainty import (
    confidence_by_class,
    confidence_histogram,
    mean_confidence,
    predictive_entropy,
)

METRICS: dict[str, Metric] = {
    "accuracy": Metric(
        accuracy,
        "accuracy",
        better="higher",
        best=1.0,
        resampling="proportion",
        values=lambda scores: scores.correct.double(),
        style=".1%",
    ),
    "ece": Metric(
        expected_calibration_error, "ECE", needs=("labels", "bins"), resampling="bin_gaps"
    ),
    "nll": Metric(
        negative_log_likelihood,
        "mean NLL",
        needs=("labels", "distribution"),
        limits=(0.0, -LOWEST_LOG),
        resampling="mean",
        values=lambda scores: scores.nll.double(),
        unit="nats",
    ),
    "brier": Metric(
        brier_score,
        "Brier score",
        needs=("labels", "distribution"),
        limits=(0.0, 2.0),
        resampling="mean",
        values=lambda scores: scores.brier.double(),
    ),
    "entropy": Metric(
        predictive_entropy,
        "mean entropy",
        needs=("distribution",),
        better=None,
        best=None,
        limits=(0.0, math.inf),
        resampling="mean",
        values=lambda scores: scores.entropy.double(),
        unit="nats",
    ),
    "confidence": Metric(
        mean_confidence,
        "mean confidence",
        needs=(),
        better=None,
        best=None,
        resampling="mean",
        values=lambda scores: scores.confidence.double(),
        style=".1%",
    ),
    "adaptive_ece": Metric(
        adaptive_calibration_error,
        "adaptive ECE",
        needs=("labels", "bins"),
        resampling="equal_mass_gaps",
    ),
    "mce": Metric(
        maximum_calibration_error,
        "maximum calibration error",
        needs=("labels", "bins"),
        resampling="largest_gap",
    ),
    "rms_ce": Metric(
        rms_calibration_error,
        "root-mean-square calibration error",
        resampling="root_mean_square_gap",
    ),
    "smooth_ece": Metric(smooth_calibration_error, "smooth ECE", resampling="smoothed_gaps"),
    "signed_gap": Metric(
        signed_gap,
        "signed gap",
        better="nearer",
        limits=(-1.0, 1.0),
        resampling="mean",
        values=lambda scores: scores.confidence.double() - scores.correct.double(),
    ),
    "aurc": Metric(
        area_under_risk_coverage,
        "area under the risk-coverage curve",
        resampling="risk_coverage",
    ),
    "classwise_ece": Metric(
        classwise_calibration_error,
        "class-wise ECE",
        needs=("labels", "all_classes", "bins"),
        resampling="class_gaps",
    ),
}
"""The metrics of one set of predictions by name, as rows and ``falconcal list`` have them."""


def metrics_without(*needs: Need) -> dict[str, Metric]:
    """Return the metrics that need none of these.

    Args:
        needs: Words of ``Metric.needs``, such as ``"labels"``.

    Returns:
        Records by name, in the order of ``METRICS``.

    Example:
        >>> from falconcal.metrics import metrics_without
        >>> list(metrics_without("labels"))
        ['entropy', 'confidence']
    """
    return {name: metric for name, metric in METRICS.items() if not set(needs) & set(metric.needs)}


__all__ = [
    "BINS",
    "CONFORMAL_KINDS",
    "METRICS",
    "POOLED",
    "Accumulator",
    "BrierParts",
    "ConformalSets",
    "Metric",
    "OutlierDetection",
    "PositiveReliability",
    "Predictions",
    "ReliabilityCurve",
    "RiskCoverage",
    "RiskTable",
    "Scores",
    "SetSummary",
    "ThresholdRow",
    "accuracy",
    "accuracy_at_coverage",
    "adaptive_calibration_error",
    "area_under_levels",
    "area_under_risk_coverage",
    "average_precision",
    "brier_decomposition",
    "brier_score",
    "classwise_calibration_error",
    "confidence_by_class",
    "confidence_histogram",
    "equal_mass_curve",
    "expected_calibration_error",
    "fit_conformal",
    "level_curve",
    "macro_ece",
    "maximum_calibration_error",
    "mean_confidence",
    "metrics_without",
    "micro_ece",
    "negative_log_likelihood",
    "outlier_detection",
    "positive_reliability",
    "predictive_entropy",
    "reliability_curve",
    "risk_coverage_curve",
    "risk_table",
    "rms_calibration_error",
    "roc_auc",
    "signed_gap",
    "smooth_calibration_error",
    "threshold_table",
]
