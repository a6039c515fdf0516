"""What a calibration brings, judged on a half of the validation data that it is not fitted on.

For calibrators that were fitted on clean data, or on one family alone, which can leave none out:
one half of the examples is fitted on, and on the other the calibration error is measured before and
after, clean and under all crafted families that the fit did not see.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from falconcal.core.batch import Batches
from falconcal.data import PREDICTION_BATCH_SIZE, Examples
from falconcal.errors import UserError
from falconcal.metrics import expected_calibration_error
from falconcal.models.predict import predict
from falconcal.recalibration.fit_record import FitRecord, LeftOutRecord
from falconcal.recalibration.held_examples import held_examples
from falconcal.recalibration.ladder import DRIFTED_COPY, Copy, Ladder, input_form
from falconcal.recalibration.unit_range import find_unit_range

if TYPE_CHECKING:
    from falconcal.recalibration.calibrator import Calibrator

FEWEST = 40  # examples in all, below which half of them say nothing


def judged_by_halves(
    calibrator: "Calibrator",
    model: nn.Module,
    train: Batches | None,
    validation: Batches,
    classes: int,
    drifted: Batches | None = None,
) -> FitRecord:
    """Return what a fit on one half of the validation data does to the other half.

    A drifted sample is fitted on too, since it moves what is found at home.
    """
    held = held_examples(validation, 2 * calibrator.fit_examples, 0, classes)
    if len(held) < FEWEST:
        note = f"{len(held)} examples are too few to say what to expect: {FEWEST} are needed."
        return FitRecord((), note=note)
    held = replace(held, bounds=getattr(validation, "bounds", None))
    first, second = _halves(held)
    quick = replace(calibrator, base=None, check_families=False)
    fitted = quick.fit(model, train, first.batches(PREDICTION_BATCH_SIZE), drifted=drifted)
    copies = _unseen_copies(calibrator, model, second, classes)
    families = list(dict.fromkeys(copy.family for copy in copies))
    judged = [
        _judged(family, [copy for copy in copies if copy.family == family], model, fitted)
        for family in families
    ]
    return FitRecord((), tuple(judged))


def drift_by_halves(
    calibrator: "Calibrator",
    model: nn.Module,
    train: Batches | None,
    validation: Batches,
    drifted: Batches,
    classes: int,
) -> LeftOutRecord | None:
    """Return what a fit on one half of drifted data does to its other half; None if too few."""
    most = 2 * (calibrator.drifted_examples or calibrator.fit_examples)
    held = held_examples(drifted, most, 0, classes)
    if len(held) < FEWEST:
        return None
    first, second = _halves(held)
    quick = replace(calibrator, base=None, check_families=False)
    fitted = quick.fit(model, train, validation, drifted=first)
    return _judged(DRIFTED_COPY, [Copy(DRIFTED_COPY, 1, 1.0, lambda: second, 0.0)], model, fitted)


def _halves(held: Examples) -> tuple[Examples, Examples]:
    half = len(held) // 2
    parts = slice(half), slice(half, None)
    first, second = (replace(held, inputs=held.inputs[p], labels=held.labels[p]) for p in parts)
    return first, second


def _unseen_copies(
    calibrator: "Calibrator", model: nn.Module, clean: Examples, classes: int
) -> list[Copy]:
    """Return the clean half, and its copies under crafted families that were not fitted on."""
    own = () if calibrator.perturbed == "crafted" else tuple(calibrator.perturbed)
    ladder = Ladder("crafted", (), 1.0, 0.0, (*calibrator.leave_out, *own))
    try:
        form = input_form(clean.inputs)
    except UserError:  # no crafted shifts for such inputs
        ladder, form = replace(ladder, perturbed={}), "table"
    scale = None
    if form == "image":
        batches = clean.batches(PREDICTION_BATCH_SIZE)
        scale = find_unit_range(batches, calibrator.bounds, calibrator.normalisation)
    return ladder.copies(model, clean, classes, scale)


def _judged(family: str, copies: list[Copy], model: nn.Module, fitted: nn.Module) -> LeftOutRecord:
    """Return the mean calibration error over the levels of a family, before and after."""
    before, after = [], []
    for copy in copies:
        examples = copy.examples
        before.append(expected_calibration_error(predict(model, examples, single_process=True)))
        after.append(expected_calibration_error(predict(fitted, examples, single_process=True)))
    return LeftOutRecord(family, sum(before) / len(before), sum(after) / len(after))
