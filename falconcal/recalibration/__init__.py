"""Recalibration: what a validation set can still mend in a fitted classifier, one file each.

Adding one: write ``recalibration/NAME.py`` in the order of its neighbours (docstring with citation,
settings, ``learn``, ``apply``, helpers) and add a line to ``METHODS`` in ``methods/__init__.py``.
"""

from falconcal.recalibration.calibrated import Calibrated, Calibration, Recalibration
from falconcal.recalibration.histogram import HistogramBinning
from falconcal.recalibration.isotonic import Isotonic
from falconcal.recalibration.scaling_binning import ScalingBinning
from falconcal.recalibration.temperature import CalibrationWarning, Temperature
from falconcal.recalibration.vector import VectorScaling

__all__ = [
    "Calibrated",
    "Calibration",
    "CalibrationWarning",
    "HistogramBinning",
    "Isotonic",
    "Recalibration",
    "ScalingBinning",
    "Temperature",
    "VectorScaling",
]
