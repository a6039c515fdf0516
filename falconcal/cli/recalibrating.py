"""The command that makes a trained model trustworthy without training it again."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falconcal.cli.app import app, split_names
from falconcal.cli.options import (
    BoundsOption,
    CalibratorOption,
    ChangesOption,
    ClassNamesOption,
    DeviationOption,
    DriftedDataOption,
    ExampleShapeOption,
    FewestOption,
    FittedOutliersOption,
    JsonOption,
    LabelledArgument,
    MeanOption,
    PerturbedOption,
    RecalibratedFileOption,
    TrainedModelArgument,
    TrainingDataOption,
    TrustOption,
    WeightsOption,
)
from falconcal.cli.terminal import errors, output, print_json, print_text, table
from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import model_file

if TYPE_CHECKING:
    from falconcal.core.trust import Trust
    from falconcal.inference.model_file import SavedModel
    from falconcal.inference.named_model import Stated
    from falconcal.recalibration import FitRecord


@app.command(
    epilog="Examples:\n\n"
    "falconcal recalibrate model.safetensors later.npz --train train.npz --out trusted.safetensors"
    "\n\n"
    "falconcal recalibrate runs/digits/runs/default/dropout/seed-0 photos --out t.safetensors\n\n"
    "falconcal recalibrate mine.nets:make rows.csv --weights net.pth --method temperature "
    "--out t.safetensors\n\n"
    "falconcal recalibrate model.safetensors rows.csv --drifted march.csv --out t.safetensors\n\n"
    "falconcal recalibrate model.safetensors photos --method isotonic --perturbed "
    "elastic_warp,gaussian_noise --out t.safetensors"
)
def recalibrate(
    model: TrainedModelArgument,
    data: LabelledArgument,
    out: RecalibratedFileOption,
    method: CalibratorOption = "shift_temperature",
    train: TrainingDataOption = None,
    drifted: DriftedDataOption = None,
    perturbed: PerturbedOption = None,
    outliers: FittedOutliersOption = None,
    changes: ChangesOption = None,
    weights: WeightsOption = None,
    classes: ClassNamesOption = None,
    shape: ExampleShapeOption = None,
    bounds: BoundsOption = None,
    mean: MeanOption = None,
    deviation: DeviationOption = None,
    fewest: FewestOption = 5,
    json: JsonOption = False,
    trust_code: TrustOption = None,
) -> None:
    """Recalibrate a trained model on labelled data; nothing is trained again.

    Ends with what to expect: a verdict in words, and the calibration error before and after, at
    home and under crafted shifts that were left out of the fit. The file appears when everything
    went well.
    """
    from falconcal.core.trust import trusting
    from falconcal.inference.named_model import Stated

    trust = trusting(trust_code).typed(model)
    stated = Stated(
        weights, _names(classes), _whole(shape), _pair(bounds), _numbers(mean), _numbers(deviation)
    )
    settings = _settings(perturbed, outliers, changes)
    try:
        given = GivenFiles(data, train, drifted, fewest)
        _recalibrate(model, out, method, given, settings, stated, trust, json)
    except UserError as error:  # all of it is about what was given
        raise UsageError(str(error)) from None


@dataclass(frozen=True)
class GivenFiles:
    """The labelled data that were given, and how many examples each class needs."""

    data: Path
    train: Path | None
    drifted: Path | None
    fewest: int


def _recalibrate(
    model: str,
    out: Path,
    method: str,
    given: GivenFiles,
    settings: dict[str, Any],
    stated: "Stated",
    trust: "Trust",
    json: bool,
) -> None:
    from falconcal.inference.recalibrated import (
        check_model_output,
        make_calibrator,
        recalibrate,
        save_recalibrated,
    )
    from falconcal.io.atomic import check_writable, explain_write_errors

    check_model_output(out, given.data, Path(model))
    check_writable(out)
    saved = _opened(model, given.data, stated, trust)
    calibrator = make_calibrator(method, settings, saved.metadata, trust)
    print_text(f"Fitting {method} ...", errors if json else output)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        found = recalibrate(saved, calibrator, given.data, given.train, given.fewest, given.drifted)
        with explain_write_errors(out):
            save_recalibrated(out, saved, found, trust)
    for words in dict.fromkeys(str(one.message) for one in raised):
        print_text(f"Warning: {words}", errors)
    _show(found.record, out, json)


def _show(record: "FitRecord", out: Path, json: bool) -> None:
    """Print the verdict, then the figures, then the details."""
    figures = record.figures()
    if json:
        rows = [dict(zip(("where", "before", "after"), row, strict=True)) for row in figures]
        result = {"verdict": record.headline(), "figures": rows, "details": record.details()}
        print_json({**result, "model": str(out)})
        return
    print_text(record.headline(), style="bold")
    if figures:
        cells = [[where, f"{before:.3f}", f"{after:.3f}"] for where, before, after in figures]
        output.print(table("Calibration error", ["Where", "Before", "After"], cells))
    for sentence in record.details():
        print_text(sentence)
    print_text(f"Model: {out}")


def _opened(model: str, data: Path, stated: "Stated", trust: "Trust") -> "SavedModel":
    """Return a saved model, or one that is named as ``package.module:make``."""
    from falconcal.inference.model_file import load
    from falconcal.inference.named_model import Stated, open_named_model
    from falconcal.models import MODELS

    path = Path(model)
    if (":" in model or model in MODELS) and not path.exists():
        return open_named_model(model, data, stated, trust)
    if stated != Stated():
        raise UsageError(
            "--weights, --classes, --shape, --bounds, --mean and --deviation are for a model that "
            "is named as package.module:make; a saved model says all of it."
        )
    return load(model_file(path), trust.packages)


def _settings(
    perturbed: str | None, outliers: str | None, changes: list[str] | None
) -> dict[str, Any]:
    """Return the settings of the calibrator that the options give."""
    from falconcal.studies.overrides import parse_override

    settings = dict(parse_override(change) for change in changes or ())
    if perturbed is not None:
        settings["perturbed"] = "crafted" if perturbed == "crafted" else split_names(perturbed)
    if outliers is not None:
        settings["outliers"] = split_names(outliers)
    return settings


def _names(text: str | None) -> tuple[str, ...] | None:
    found = split_names(text)
    return None if found is None else tuple(found)


def _numbers(text: str | None) -> tuple[float, ...] | None:
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"expected numbers separated by commas, got {text!r}.") from None


def _whole(text: str | None) -> tuple[int, ...] | None:
    found = _numbers(text)
    if found is not None and any(number < 1 or number != int(number) for number in found):
        raise UsageError(f"expected whole numbers above 0, such as 3,224,224, got {text!r}.")
    return None if found is None else tuple(int(number) for number in found)


def _pair(text: str | None) -> tuple[float, float] | None:
    found = _numbers(text)
    if found is not None and len(found) != 2:
        raise UsageError(f"expected the lowest and the highest value, such as 0,1, got {text!r}.")
    return None if found is None else (found[0], found[1])
