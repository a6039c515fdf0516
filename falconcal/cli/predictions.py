"""Predictions: measure anybody's, make them with a saved model."""

from pathlib import Path
from typing import Annotated

import typer

from falconcal.cli.app import TrustOption, app
from falconcal.layout import model_file
from falconcal.terminal import errors, output, say, show_outcome, show_score


@app.command(
    epilog="Examples:\n\n"
    "falconcal score predictions.csv\n\n"
    "falconcal score predictions.parquet --labels truth --probabilities class_ --groups site\n\n"
    "falconcal score outputs.npz --logits --out scored"
)
def score(
    file: Annotated[Path, typer.Argument(help="A CSV, Parquet or NPZ file, told by its ending.")],
    labels: Annotated[
        str | None,
        typer.Option(help="Column of the true class; 'label' unless given, in NPZ 'labels'."),
    ] = None,
    probabilities: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="What the columns of the classes begin with; 'p_' unless given, 'logit_' with "
            "--logits. In NPZ the array, 'probabilities' or 'logits'.",
        ),
    ] = None,
    logits: Annotated[
        bool, typer.Option("--logits", help="The numbers are logits, not probabilities.")
    ] = False,
    groups: Annotated[
        str | None, typer.Option(help="Column of groups, such as a site; the worst are named.")
    ] = None,
    metric: Annotated[str, typer.Option(help="The metric by which groups are compared.")] = "ece",
    bins: Annotated[int, typer.Option(help="Bins of confidence.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; runs/score/NAME of the file unless given.")
    ] = None,
) -> None:
    """Measure anybody's predictions, and draw them in one HTML page.

    Nothing is guessed: a row or column that is not as it should be is named.
    """
    from falconcal.assessment import assess
    from falconcal.reading import read_predictions
    from falconcal.report.score import check_folder, write_score_page

    directory = out if out is not None else Path("runs") / "score" / file.stem
    check_folder(directory)
    read = read_predictions(
        file, labels=labels, probabilities=probabilities, logits=logits, groups=groups
    )
    output.print(f"Measuring {len(read.predictions):,} examples ...", highlight=False)
    found = assess(read.predictions, bins=bins, groups=read.groups, metric=metric)
    show_score(found)  # before anything is drawn, which may fail
    page = write_score_page(found, directory, title=file.name, classes=read.classes)
    say(f"Page: {page}")


@app.command(
    epilog="Examples:\n\n"
    "falconcal predict model.safetensors photos --reject-below 0.8\n\n"
    "falconcal predict model.safetensors rows.csv --risk 0.05 --out answers.parquet\n\n"
    "falconcal predict runs/digits/runs/default/falcon/seed-0 images.npy"
)
def predict(
    model: Annotated[
        Path, typer.Argument(help="A file that falconcal.save wrote, or the folder of a run.")
    ],
    source: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="A folder of images, or a CSV, NPY or NPZ file."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file; runs/predict/NAME of the input.csv unless given."),
    ] = None,
    reject_below: Annotated[
        float | None, typer.Option(help="Reject answers whose confidence is below this.")
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            help="Reject so many that the error of the others stays below this, with 95 % "
            "certainty by the validation data that the model was saved with."
        ),
    ] = None,
    trust_code: TrustOption = None,
) -> None:
    """Answer inputs with a saved model: label, confidence, entropy, and what to reject.

    One batch is in memory at a time; the output file appears when it is complete.
    """
    from falconcal.predicting import (
        check_output,
        choose_threshold,
        chose_its_epoch,
        open_source,
        predict_into,
    )
    from falconcal.progress import counting
    from falconcal.saving import load

    name = source.resolve().name if source.is_dir() else source.stem
    target = out if out is not None else Path("runs") / "predict" / f"{name}.csv"
    check_output(target, source)
    saved = load(model_file(model), trust_code or ())
    threshold = choose_threshold(saved.facts, reject_below, risk)
    if risk is not None and chose_its_epoch(saved.facts):
        say("Validation data chose this model's epoch: the risk may be somewhat higher.", errors)
    opened = open_source(source, saved.facts)
    if opened.named == "file" and saved.facts.framing is None:
        say(
            "The model file does not say how pictures are framed: they are stretched to its size. "
            "Save it again with framing=.",
            errors,
        )
    with counting(errors, source.name, opened.total) as advance:
        outcome = predict_into(target, saved, opened, threshold, advance)
    show_outcome(outcome, target, threshold)
