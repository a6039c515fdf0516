"""Commands for predictions: measure those of any model, make them with a saved one."""

from pathlib import Path
from typing import Annotated

import typer

from falconcal.cli.app import TrustOption, app
from falconcal.cli.terminal import errors, output, print_text, show_outcome, show_score
from falconcal.io.output_folder import model_file


@app.command(
    epilog="Examples:\n\n"
    "falconcal score predictions.csv\n\n"
    "falconcal score predictions.parquet --labels truth --probabilities class_ --groups site\n\n"
    "falconcal score outputs.npz --logits --out scored"
)
def score(
    file: Annotated[
        Path, typer.Argument(help="CSV, Parquet or NPZ file; the extension gives the format.")
    ],
    labels: Annotated[
        str | None,
        typer.Option(help="Column of the true class (default: label; in NPZ files labels)."),
    ] = None,
    probabilities: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="Prefix of the columns of the classes (default: p_; with --logits logit_). In NPZ "
            "files the name of the array (default: probabilities; with --logits logits).",
        ),
    ] = None,
    logits: Annotated[
        bool, typer.Option("--logits", help="The numbers are logits, not probabilities.")
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(help="Column of groups, such as sites; the worst groups are shown."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric by which groups are compared.")] = "ece",
    bins: Annotated[int, typer.Option(help="Number of bins of confidence.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="Output folder (default: runs/score/NAME of the file).")
    ] = None,
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
    model: Annotated[
        Path, typer.Argument(help="File written by falconcal.save, or the folder of a run.")
    ],
    source: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="Folder of images, or a CSV, NPY or NPZ file."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file (default: runs/predict/INPUT.csv)."),
    ] = None,
    reject_below: Annotated[
        float | None, typer.Option(help="Reject predictions with a confidence below this.")
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            help="Reject as many as needed to keep the error rate of the others below this, with "
            "95 % certainty by the validation data that the model was saved with."
        ),
    ] = None,
    trust_code: TrustOption = None,
) -> None:
    """Predict inputs with a saved model: label, confidence, entropy, and what to reject.

    One batch is in memory at a time; the output file appears when it is complete.
    """
    from falconcal.cli.progress import progress_bar
    from falconcal.inference.inputs import (
        check_output,
        choose_threshold,
        chose_its_epoch,
        open_inputs,
        write_predictions,
    )
    from falconcal.inference.model_file import load

    name = source.resolve().name if source.is_dir() else source.stem
    target = out if out is not None else Path("runs") / "predict" / f"{name}.csv"
    check_output(target, source)
    saved = load(model_file(model), trust_code or ())
    threshold = choose_threshold(saved.metadata, reject_below, risk)
    if risk is not None and chose_its_epoch(saved.metadata):
        print_text(
            "The validation data also chose this model's epoch: the risk may be somewhat higher.",
            errors,
        )
    opened = open_inputs(source, saved.metadata)
    if opened.named == "file" and saved.metadata.framing is None:
        print_text(
            "The model file does not say how images are resized and cropped: they are stretched to "
            "its size. Save the model again with framing=.",
            errors,
        )
    with progress_bar(errors, source.name, opened.total) as advance:
        outcome = write_predictions(target, saved, opened, threshold, advance)
    show_outcome(outcome, target, threshold)
