"""Classifiers whose confidence can be trusted when the data shifts.

The public names are looked up when they are first used, so that ``falconcal --help`` does not wait
for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from falconcal.assessment import Assessment, assess
    from falconcal.data import DATASETS, Bounds, Dataset, Examples, load_dataset
    from falconcal.errors import UsageError, UserError
    from falconcal.evaluation import evaluate, rows_of, score
    from falconcal.evidence import (
        Difference,
        Interval,
        by_group,
        holm,
        interval,
        outlier_interval,
        paired_difference,
        pooled_difference,
        pooled_interval,
        rank_sum,
        signed_rank,
    )
    from falconcal.losses import calibration_loss, predictive_entropy_loss
    from falconcal.method import Method
    from falconcal.methods import (
        METHODS,
        Evidential,
        Falcon,
        FalconStep,
        Focal,
        L2Dropout,
        LabelSmoothing,
        Mixup,
    )
    from falconcal.metrics import (
        CLASS_METRICS,
        METRICS,
        Accumulator,
        RiskTable,
        accuracy,
        accuracy_at_coverage,
        adaptive_calibration_error,
        area_under_risk_coverage,
        brier_decomposition,
        brier_score,
        classwise_calibration_error,
        confidence_by_class,
        confidence_histogram,
        expected_calibration_error,
        macro_ece,
        maximum_calibration_error,
        mean_confidence,
        micro_ece,
        negative_log_likelihood,
        outlier_detection,
        predictive_entropy,
        reliability_curve,
        risk_coverage_curve,
        risk_table,
        rms_calibration_error,
        signed_gap,
        smooth_calibration_error,
    )
    from falconcal.models import MODELS, VGG, LeNet, PixelRecurrent, TokenTransformer, make_model
    from falconcal.predictions import Predictions, Scores, predict
    from falconcal.reading import PredictionFile, read_predictions
    from falconcal.recalibration import (
        Calibration,
        CalibrationWarning,
        HistogramBinning,
        Isotonic,
        ScalingBinning,
        Temperature,
        VectorScaling,
    )
    from falconcal.report.score import write_score_page
    from falconcal.saving import ModelFacts, SavedModel, load, save
    from falconcal.shifts import (
        SHIFTS,
        Shift,
        affine_shifts,
        corruption_shifts,
        plain_shifts,
        signal_shifts,
    )
    from falconcal.shifts.adversarial import fgsm
    from falconcal.studies import STUDIES, Study, find_study
    from falconcal.training import CollapseWarning, History, checkpointing

__version__ = "0.1.0"

_HOMES = {
    "falconcal.assessment": ["Assessment", "assess"],
    "falconcal.data": ["DATASETS", "Bounds", "Dataset", "Examples", "load_dataset"],
    "falconcal.errors": ["UsageError", "UserError"],
    "falconcal.evaluation": ["evaluate", "rows_of", "score"],
    "falconcal.evidence": [
        "Difference",
        "Interval",
        "by_group",
        "holm",
        "interval",
        "outlier_interval",
        "paired_difference",
        "pooled_difference",
        "pooled_interval",
        "rank_sum",
        "signed_rank",
    ],
    "falconcal.losses": ["calibration_loss", "predictive_entropy_loss"],
    "falconcal.method": ["Method"],
    "falconcal.methods": [
        "METHODS",
        "Evidential",
        "Falcon",
        "FalconStep",
        "Focal",
        "L2Dropout",
        "LabelSmoothing",
        "Mixup",
    ],
    "falconcal.metrics": [
        "CLASS_METRICS",
        "METRICS",
        "Accumulator",
        "RiskTable",
        "accuracy",
        "accuracy_at_coverage",
        "adaptive_calibration_error",
        "area_under_risk_coverage",
        "brier_decomposition",
        "brier_score",
        "classwise_calibration_error",
        "confidence_by_class",
        "confidence_histogram",
        "expected_calibration_error",
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
    ],
    "falconcal.models": [
        "MODELS",
        "VGG",
        "LeNet",
        "PixelRecurrent",
        "TokenTransformer",
        "make_model",
    ],
    "falconcal.predictions": ["Predictions", "Scores", "predict"],
    "falconcal.reading": ["PredictionFile", "read_predictions"],
    "falconcal.recalibration": [
        "Calibration",
        "CalibrationWarning",
        "HistogramBinning",
        "Isotonic",
        "ScalingBinning",
        "Temperature",
        "VectorScaling",
    ],
    "falconcal.report.score": ["write_score_page"],
    "falconcal.saving": ["ModelFacts", "SavedModel", "load", "save"],
    "falconcal.shifts": [
        "SHIFTS",
        "Shift",
        "affine_shifts",
        "corruption_shifts",
        "plain_shifts",
        "signal_shifts",
    ],
    "falconcal.shifts.adversarial": ["fgsm"],
    "falconcal.studies": ["STUDIES", "Study", "find_study"],
    "falconcal.training": ["CollapseWarning", "History", "checkpointing"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CLASS_METRICS",
    "DATASETS",
    "METHODS",
    "METRICS",
    "MODELS",
    "SHIFTS",
    "STUDIES",
    "VGG",
    "Accumulator",
    "Assessment",
    "Bounds",
    "Calibration",
    "CalibrationWarning",
    "CollapseWarning",
    "Dataset",
    "Difference",
    "Evidential",
    "Examples",
    "Falcon",
    "FalconStep",
    "Focal",
    "HistogramBinning",
    "History",
    "Interval",
    "Isotonic",
    "L2Dropout",
    "LabelSmoothing",
    "LeNet",
    "Method",
    "Mixup",
    "ModelFacts",
    "PixelRecurrent",
    "PredictionFile",
    "Predictions",
    "RiskTable",
    "SavedModel",
    "ScalingBinning",
    "Scores",
    "Shift",
    "Study",
    "Temperature",
    "TokenTransformer",
    "UsageError",
    "UserError",
    "VectorScaling",
    "accuracy",
    "accuracy_at_coverage",
    "adaptive_calibration_error",
    "affine_shifts",
    "area_under_risk_coverage",
    "assess",
    "brier_decomposition",
    "brier_score",
    "by_group",
    "calibration_loss",
    "checkpointing",
    "classwise_calibration_error",
    "confidence_by_class",
    "confidence_histogram",
    "corruption_shifts",
    "evaluate",
    "expected_calibration_error",
    "fgsm",
    "find_study",
    "holm",
    "interval",
    "load",
    "load_dataset",
    "macro_ece",
    "make_model",
    "maximum_calibration_error",
    "mean_confidence",
    "micro_ece",
    "negative_log_likelihood",
    "outlier_detection",
    "outlier_interval",
    "paired_difference",
    "plain_shifts",
    "pooled_difference",
    "pooled_interval",
    "predict",
    "predictive_entropy",
    "predictive_entropy_loss",
    "rank_sum",
    "read_predictions",
    "reliability_curve",
    "risk_coverage_curve",
    "risk_table",
    "rms_calibration_error",
    "rows_of",
    "save",
    "score",
    "signal_shifts",
    "signed_gap",
    "signed_rank",
    "smooth_calibration_error",
    "write_score_page",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'falconcal' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
