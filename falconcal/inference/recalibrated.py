"""A model that is already trained, recalibrated on labelled data and written to a file."""

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falconcal.core.batch import Batches
from falconcal.core.trust import Trust
from falconcal.errors import UsageError, UserError, unknown_name_error
from falconcal.inference.inputs.image_inputs import framing_in
from falconcal.inference.inputs.labelled_inputs import LabelledData, check_enough, read_labelled
from falconcal.inference.model_file import SavedModel, save
from falconcal.inference.model_metadata import ModelMetadata, check_metadata
from falconcal.io.image_files import is_image_shape
from falconcal.methods import METHODS, make_method
from falconcal.models.predict import predict
from falconcal.recalibration import CalibratedModel, Calibrator, FitRecord, LeftOutRecord
from falconcal.recalibration.fitting import ALWAYS_FITTED
from falconcal.recalibration.held_out_half import drift_by_halves, judged_by_halves

CALIBRATORS = [
    name
    for name, make in METHODS.items()
    if isinstance(make, type) and issubclass(make, Calibrator)
]


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """A recalibrated model, and what may be expected of it."""

    model: CalibratedModel
    calibrator: Calibrator
    record: FitRecord
    validation: LabelledData


def make_calibrator(
    name: str, settings: Mapping[str, Any], metadata: ModelMetadata, trust: Trust
) -> Calibrator:
    """Return a calibrator by name with its settings, for the inputs that a model takes.

    Raises:
        UsageError: The name is no calibrator's, or a setting is wrong.
    """
    if name not in CALIBRATORS and ":" not in name:
        raise unknown_name_error("calibrator", name, CALIBRATORS)
    if "base" in settings:
        raise UsageError(
            "expected no base: the model is trained already, and is not trained again."
        )
    stated = dict(settings)
    if metadata.mean is not None and metadata.deviation is not None:
        stated.setdefault("normalisation", [list(metadata.mean), list(metadata.deviation)])
    made = make_method({"method": name, **stated}, trust)
    if not isinstance(made, Calibrator):
        raise UsageError(f"expected {name!r} to be a calibrator, it trains models.")
    return made


def recalibrate(
    saved: SavedModel,
    calibrator: Calibrator,
    data: Path,
    train: Path | None,
    fewest: int,
    drifted: Path | None = None,
) -> Recalibrated:
    """Fit a calibrator on labelled data, and say what it brings on data that it did not see.

    Args:
        saved: The model and what is known of it.
        calibrator: What is fitted.
        data: Labelled data that did not train the model: a folder, an NPZ or a CSV file.
        train: Training data, for calibrators that store some of it.
        fewest: Examples that each class of the model needs.
        drifted: A labelled sample of later data, fitted on too: another month, site or camera.

    Raises:
        UserError: The data does not fit the model, or cannot be fitted on.
    """
    check_metadata(saved.metadata)
    validation = read_labelled(data, saved.metadata, "validation")
    check_enough(data, validation, saved.metadata, fewest)
    given = Given(
        None if train is None else _training_data(train, saved.metadata, fewest),
        validation.batches,
        None if drifted is None else read_labelled(drifted, saved.metadata, "drifted").batches,
    )
    model = calibrator.fit(saved.model, given.train, given.validation, drifted=given.drifted)
    if train is not None and model.observer is None:
        named = type(calibrator).__name__
        warnings.warn(f"{train} is not used: {named} keeps no training examples.", stacklevel=2)
    return Recalibrated(model, calibrator, _judged(saved, calibrator, model, given), validation)


def _training_data(path: Path, metadata: ModelMetadata, fewest: int) -> Batches:
    """Return the data that the model was trained on, every class of which is compared with."""
    train = read_labelled(path, metadata, "train")
    check_enough(path, train, metadata, fewest)
    return train.batches


@dataclass(frozen=True)
class Given:
    """The labelled data that were given, as batches."""

    train: Batches | None
    validation: Batches
    drifted: Batches | None


def _judged(
    saved: SavedModel, calibrator: Calibrator, model: CalibratedModel, given: Given
) -> FitRecord:
    """Return what to expect, at home and, where a sample of it was given, of drifted data."""
    classes, record = len(saved.metadata.classes), model.fit_record
    if record is None or not any(_is_crafted(one) for one in record.left_out):
        judged = judged_by_halves(
            calibrator, saved.model, given.train, given.validation, classes, given.drifted
        )
        record = judged if record is None else _joined(record, judged)
    if given.drifted is None:
        return record
    return record.with_drift(
        drift_by_halves(
            calibrator, saved.model, given.train, given.validation, given.drifted, classes
        )
    )


def _is_crafted(judged: LeftOutRecord) -> bool:
    return not judged.is_outliers and judged.family not in ALWAYS_FITTED


def _joined(record: FitRecord, judged: FitRecord) -> FitRecord:
    """Return a record with what halves say, or with why they say nothing; outliers stay."""
    note = f"{record.note} {judged.note}".strip()
    outside = tuple(one for one in record.left_out if one.is_outliers)
    left_out = (*judged.left_out, *outside) if judged.left_out else record.left_out
    return dataclasses.replace(record, left_out=left_out, note=note)


def save_recalibrated(
    path: Path, saved: SavedModel, recalibrated: Recalibrated, trust: Trust
) -> None:
    """Write the model to a file; its method is the calibrator around what trained the model."""
    metadata = saved.metadata
    base = None if metadata.method is None else make_method(metadata.method, trust)
    save(
        recalibrated.model,
        path,
        metadata.architecture,
        classes=metadata.classes,
        shape=metadata.shape,
        arguments=metadata.arguments,
        bounds=metadata.bounds,
        preparation=metadata.preparation,
        tokens=metadata.tokens,
        columns=metadata.columns,
        mean=metadata.mean,
        deviation=metadata.deviation,
        framing=framing_in(metadata) if is_image_shape(metadata.shape) else None,
        method=dataclasses.replace(recalibrated.calibrator, base=base),
        validation=predict(recalibrated.model, recalibrated.validation.batches),
    )


def check_model_output(out: Path, *given: Path) -> None:
    """Refuse an output file that cannot be written, or that is one of those given."""
    if out.suffix != ".safetensors":
        raise UsageError(f"expected --out to end in .safetensors, got {out.name!r}.")
    if out.is_dir():
        raise UserError(f"expected --out to be a file, got the folder {out}.")
    for other in given:
        if out.exists() and other.exists() and out.samefile(other):
            raise UsageError(f"expected --out to be another file than {other}.")
    if out.exists():  # it may be a model that is at work
        raise UsageError(f"{out} is there already: name another file with --out, or remove it.")
