"""Recalibration: what validation data can still improve in a fitted classifier, one file each.

Adding one: write ``recalibration/NAME.py`` in the order of its neighbours (docstring with citation,
settings, ``learn``, ``apply``, helpers) and add a line to ``METHODS`` in ``methods/__init__.py``.
"""

from falconcal.errors import CalibrationWarning
from falconcal.recalibration.calibrated_model import CalibratedModel, FittedCalibrator
from falconcal.recalibration.calibrator import Calibrator
from falconcal.recalibration.density_aware import DensityAware
from falconcal.recalibration.ensemble_temperature import EnsembleTemperature
from falconcal.recalibration.fit_record import FitRecord, LeftOutRecord
from falconcal.recalibration.histogram_binning import HistogramBinning
from falconcal.recalibration.isotonic import Isotonic
from falconcal.recalibration.one_curve_isotonic import OneCurveIsotonic
from falconcal.recalibration.parameterised_temperature import ParameterisedTemperature
from falconcal.recalibration.scaling_binning import ScalingBinning
from falconcal.recalibration.shift_temperature import ShiftTemperature
from falconcal.recalibration.temperature import Temperature
from falconcal.recalibration.vector import VectorScaling

__all__ = [
    "CalibratedModel",
    "CalibrationWarning",
    "Calibrator",
    "DensityAware",
    "EnsembleTemperature",
    "FitRecord",
    "FittedCalibrator",
    "HistogramBinning",
    "Isotonic",
    "LeftOutRecord",
    "OneCurveIsotonic",
    "ParameterisedTemperature",
    "ScalingBinning",
    "ShiftTemperature",
    "Temperature",
    "VectorScaling",
]
