"""Metrics: pure functions of scores, and the table of them.

Adding one: write a function of ``Scores`` that returns a number, in the file of its kind, and add a
line to ``METRICS``. What needs the probabilities of all classes takes ``Predictions`` and stands in
``CLASS_METRICS``.
"""

from collections.abc import Callable

from falconcal.metrics.accumulate import Accumulator
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
from falconcal.metrics.outlier_detection import OutlierDetection, outlier_detection
from falconcal.metrics.over_levels import (
    POOLED,
    area_under_levels,
    level_curve,
    macro_ece,
    micro_ece,
)
from falconcal.metrics.predictions import Predictions, Scores
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

METRICS: dict[str, Callable[[Predictions | Scores], float]] = {
    "accuracy": accuracy,
    "ece": expected_calibration_error,
    "nll": negative_log_likelihood,
    "brier": brier_score,
    "entropy": predictive_entropy,
    "confidence": mean_confidence,
    "adaptive_ece": adaptive_calibration_error,
    "mce": maximum_calibration_error,
    "rms_ce": rms_calibration_error,
    "smooth_ece": smooth_calibration_error,
    "signed_gap": signed_gap,
    "aurc": area_under_risk_coverage,
}

CLASS_METRICS: dict[str, Callable[[Predictions], float]] = {
    "classwise_ece": classwise_calibration_error,
}

__all__ = [
    "BINS",
    "CLASS_METRICS",
    "METRICS",
    "POOLED",
    "Accumulator",
    "BrierParts",
    "OutlierDetection",
    "Predictions",
    "ReliabilityCurve",
    "RiskCoverage",
    "RiskTable",
    "Scores",
    "accuracy",
    "accuracy_at_coverage",
    "adaptive_calibration_error",
    "area_under_levels",
    "area_under_risk_coverage",
    "brier_decomposition",
    "brier_score",
    "classwise_calibration_error",
    "confidence_by_class",
    "confidence_histogram",
    "equal_mass_curve",
    "expected_calibration_error",
    "level_curve",
    "macro_ece",
    "maximum_calibration_error",
    "mean_confidence",
    "micro_ece",
    "negative_log_likelihood",
    "outlier_detection",
    "predictive_entropy",
    "reliability_curve",
    "risk_coverage_curve",
    "risk_table",
    "rms_calibration_error",
    "signed_gap",
    "smooth_calibration_error",
]
