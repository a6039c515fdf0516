"""Commands for predictions: measure those of any model, make them with a saved one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from falconcal.cli.app import app
from falconcal.cli.options import (
    BinsOption,
    ClassProbabilitiesOption,
    ConfidenceOption,
    FormOption,
    GroupMetricOption,
    GroupsOption,
    IdentifierOption,
    InputArgument,
    JsonOption,
    LabelsOption,
    LogitsOption,
    ModelArgument,
    NoHeaderOption,
    NormaliseOption,
    PositiveOption,
    PredictionOption,
    PredictionsArgument,
    PredictionsFileOption,
    ProbabilitiesOption,
    RejectBelowOption,
    RiskOption,
    RunLevelOption,
    RunShiftOption,
    ScoreFolderOption,
    TrustOption,
    TruthOption,
)
from falconcal.cli.terminal import errors, print_text, show_outcome

if TYPE_CHECKING:
    from falconcal.inference.inputs.input_source import InputSource
    from falconcal.inference.model_metadata import ModelMetadata


@app.command(
    epilog="Examples:\n\n"
    "falconcal score predictions.csv\n\n"
    "falconcal score before.csv after.csv\n\n"
    "falconcal score submission.csv --truth solution.csv\n\n"
    "falconcal score predictions.parquet --labels truth --probabilities class_ --groups site\n\n"
    "falconcal score outputs.npz --logits --out scored"
)
def score(
    files: PredictionsArgument,
    labels: LabelsOption = None,
    probabilities: ProbabilitiesOption = None,
    logits: LogitsOption = False,
    truth: TruthOption = None,
    identifier: IdentifierOption = None,
    positive: PositiveOption = None,
    prediction: PredictionOption = None,
    confidence: ConfidenceOption = None,
    form: FormOption = None,
    normalise: NormaliseOption = False,
    no_header: NoHeaderOption = False,
    shift: RunShiftOption = None,
    level: RunLevelOption = None,
    groups: GroupsOption = None,
    metric: GroupMetricOption = "ece",
    bins: BinsOption = 10,
    out: ScoreFolderOption = None,
    json: JsonOption = False,
) -> None:
    """Measure the calibration of predictions from a file and write an HTML page.

    The names of the columns tell which form a file has, and one line says which was found. Nothing
    is guessed: an error names the row and the column that are not as expected.
    """
    from falconcal.cli.score_files import check_together, read_files, score_one, score_several

    directory = out if out is not None else Path("runs") / "score" / _folder_name(files)
    check_together(files, directory, groups)
    read = read_files(
        files,
        json=json,
        labels=labels,
        probabilities=probabilities,
        logits=logits,
        groups=groups,
        form=form,
        positive=positive,
        prediction=prediction,
        confidence=confidence,
        normalise=normalise,
        header=not no_header,
        truth=truth,
        identifier=identifier,
        shift=shift,
        level=level,
    )
    if len(read) == 1:
        score_one(read[0], directory, metric=metric, bins=bins, json=json)
    else:
        score_several(read, directory, bins=bins, json=json)


def _folder_name(files: Sequence[Path]) -> str:
    """Return the name of the output folder, made of the names of the files."""
    return "+".join("standard-input" if str(file) == "-" else file.stem for file in files)


@app.command(
    "predict",
    epilog="Examples:\n\n"
    "falconcal predict model.safetensors photos --reject-below 0.8\n\n"
    "falconcal predict model.safetensors rows.csv --risk 0.05 --out answers.parquet\n\n"
    "falconcal predict model.safetensors rows.csv --probabilities --out answers.csv\n\n"
    "falconcal predict runs/digits/runs/default/falcon/seed-0 images.npy",
)
def predict_inputs(
    model: ModelArgument,
    source: InputArgument,
    out: PredictionsFileOption = None,
    probabilities: ClassProbabilitiesOption = False,
    reject_below: RejectBelowOption = None,
    risk: RiskOption = None,
    trust_code: TrustOption = None,
) -> None:
    """Predict inputs with a saved model: label, confidence, entropy, and what to reject.

    One batch is in memory at a time; the output file appears when it is complete.
    """
    from falconcal.cli.progress import progress_bar
    from falconcal.inference.inputs import (
        check_output,
        choose_threshold,
        open_inputs,
        write_predictions,
    )
    from falconcal.inference.model_file import load

    name = source.resolve().name if source.is_dir() else source.stem
    target = out if out is not None else Path("runs") / "predict" / f"{name}.csv"
    check_output(target, source)
    saved = load(model, trust_code or ())
    threshold = choose_threshold(saved.metadata, reject_below, risk)
    opened = open_inputs(source, saved.metadata)
    _print_doubts(saved.metadata, opened, risk)
    with progress_bar(errors, source.name, opened.total) as advance:
        outcome = write_predictions(
            target, saved, opened, threshold, advance, probabilities=probabilities
        )
    show_outcome(outcome, target, threshold)


def _print_doubts(metadata: "ModelMetadata", opened: "InputSource", risk: float | None) -> None:
    """Print what makes these predictions less certain than they look."""
    from falconcal.inference.inputs import chose_its_epoch

    if risk is not None and chose_its_epoch(metadata):
        print_text(
            "The validation data also chose this model's epoch: the risk may be somewhat higher.",
            errors,
        )
    if opened.named == "file" and metadata.framing is None:
        print_text(
            "The model file does not say how images are resized and cropped: they are stretched to "
            "its size. Save the model again with framing=.",
            errors,
        )
