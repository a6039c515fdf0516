"""Commands for predictions: measure those of any model, make them with a saved one."""

from pathlib import Path
from typing import TYPE_CHECKING

from falconcal.cli.app import app
from falconcal.cli.options import (
    BinsOption,
    GroupMetricOption,
    GroupsOption,
    InputArgument,
    LabelsOption,
    LogitsOption,
    ModelArgument,
    PredictionsArgument,
    PredictionsFileOption,
    ProbabilitiesOption,
    RejectBelowOption,
    RiskOption,
    ScoreFolderOption,
    TrustOption,
)
from falconcal.cli.terminal import errors, output, print_text, show_outcome, show_score

if TYPE_CHECKING:
    from falconcal.inference.inputs.input_source import InputSource
    from falconcal.inference.model_metadata import ModelMetadata


@app.command(
    epilog="Examples:\n\n"
    "falconcal score predictions.csv\n\n"
    "falconcal score predictions.parquet --labels truth --probabilities class_ --groups site\n\n"
    "falconcal score outputs.npz --logits --out scored"
)
def score(
    file: PredictionsArgument,
    labels: LabelsOption = None,
    probabilities: ProbabilitiesOption = None,
    logits: LogitsOption = False,
    groups: GroupsOption = None,
    metric: GroupMetricOption = "ece",
    bins: BinsOption = 10,
    out: ScoreFolderOption = None,
) -> None:
    """Measure the calibration of predictions from a file and write an HTML page.

    Nothing is guessed: an error names the row and the column that are not as expected.
    """
    from falconcal.evaluation.assessment import assess
    from falconcal.inference.prediction_files import read_predictions
    from falconcal.report.pages.score_page import check_folder, write_score_page

    directory = out if out is not None else Path("runs") / "score" / file.stem
    check_folder(directory)
    read = read_predictions(
        file, labels=labels, probabilities=probabilities, logits=logits, groups=groups
    )
    output.print(f"Measuring {len(read.predictions):,} examples ...", highlight=False)
    found = assess(read.predictions, bins=bins, groups=read.groups, metric=metric)
    show_score(found)  # before the figures, which may fail
    page = write_score_page(found, directory, title=file.name, classes=read.classes)
    print_text(f"Page: {page}")


@app.command(
    "predict",
    epilog="Examples:\n\n"
    "falconcal predict model.safetensors photos --reject-below 0.8\n\n"
    "falconcal predict model.safetensors rows.csv --risk 0.05 --out answers.parquet\n\n"
    "falconcal predict runs/digits/runs/default/falcon/seed-0 images.npy",
)
def predict_inputs(
    model: ModelArgument,
    source: InputArgument,
    out: PredictionsFileOption = None,
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
        outcome = write_predictions(target, saved, opened, threshold, advance)
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
