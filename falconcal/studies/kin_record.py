"""What a run records of the families it was fitted on, and which of the study's shifts are kin.

A calibrator says in its fit record which copies it was fitted on, after what the study tests was
left out. A training method that calibrates over named shifts was fitted on these.
"""

from typing import Any

from torch import nn

from falconcal.core.method import Method
from falconcal.methods.falcon_directions import shift_directions
from falconcal.recalibration import CalibratedModel
from falconcal.recalibration.ladder import DRIFTED_COPY
from falconcal.shifts import kin_among
from falconcal.studies.study import Study


def fitted_families(method: Method | None, model: nn.Module) -> list[str]:
    """Return the families that a method, or a base of it, was fitted on, each once."""
    families = _copied(model)
    while method is not None:
        families += shift_directions(getattr(method, "directions", ()))
        families += getattr(method, "trained_shifts", ())
        method = getattr(method, "base", None)
    return list(dict.fromkeys(families))


def _copied(model: nn.Module) -> list[str]:
    """Return the families and outliers of all calibrations that were fitted just now."""
    calibrated = (part for part in model.modules() if isinstance(part, CalibratedModel))
    records = (part.fit_record for part in calibrated if part.fit_record is not None)
    return [copy.family for record in records for copy in record.copies if copy.level > 0]


def kin_record(study: Study, families: list[str]) -> dict[str, Any]:
    """Return what run.json says of them; nothing of a run that was fitted on clean data alone."""
    if not families:
        return {}
    drifted = study.own_drift.drifted
    if drifted is not None:  # by the name of the shift that the sample is of
        families = [drifted.shift if name == DRIFTED_COPY else name for name in families]
    return {"fitted_on": families, "kin": kin_among(study.all_shifts(), families)}
