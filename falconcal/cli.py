"""The command: parse, call one function, exit code."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import falconcal
from falconcal.errors import UsageError, UserError, unknown
from falconcal.layout import model_file

if TYPE_CHECKING:
    from falconcal.assessment import Assessment
    from falconcal.predicting import Outcome

WORST = 5  # groups shown on a terminal
DAMAGED = 20  # images named on a terminal
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
OfflineOption = Annotated[bool, typer.Option("--offline", help="Download nothing.")]

app = typer.Typer(
    name="falconcal",
    help="Classifiers whose confidence can be trusted when the data shifts.",
    epilog="Begin with: falconcal run digits",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
data = typer.Typer(
    help="The datasets' files: what is here, downloads, checksums.", no_args_is_help=True
)
app.add_typer(data, name="data")
output = Console()
errors = Console(stderr=True)


def main() -> None:
    """Run the command; a user's mistake gets a message, only a mistake of ours a traceback."""
    try:
        sys.path.append(os.getcwd())  # noqa: PTH109 - where package.module:Name may lie
        app()
    except UsageError as error:
        _leave(error, WRONG_USAGE)
    except (UserError, OSError) as error:
        _leave(error, FAILED)
    except SystemExit as end:
        # typer leaves with 130 when interrupted; here that is a failure like any other
        sys.exit(FAILED if end.code == INTERRUPTED else end.code)


def _leave(error: Exception, code: int) -> None:
    errors.print(f"Error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.print(f"falconcal {falconcal.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command(
    epilog="Examples:\n\n"
    "falconcal run digits\n\n"
    "falconcal run digits --methods falcon --seeds 3 --out runs/three\n\n"
    "falconcal run digits --set falcon.epochs=10 --set batch_size=50 --out runs/short\n\n"
    "falconcal run my_study.toml"
)
def run(
    study: Annotated[str, typer.Argument(help="Name of a study, or the path of its TOML file.")],
    methods: Annotated[
        str | None, typer.Option(help="Only these methods of the study, separated by commas.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, from 0 on.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; runs/STUDY unless given.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: key=value. May be given often."),
    ] = None,
    offline: OfflineOption = False,
) -> None:
    """Train a study's methods, measure them under shift, and write a report.

    Running again skips what is complete and finishes what is not.
    """
    from falconcal.progress import make_progress
    from falconcal.studies import find_study
    from falconcal.studies.runner import run_study

    _stay_offline(offline)
    wanted = [*(changes or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    found = find_study(study, wanted)
    directory = out if out is not None else Path("runs") / found.name
    chosen = [name.strip() for name in methods.split(",")] if methods is not None else None
    try:
        with make_progress(output) as progress:
            run_study(found, directory, progress, chosen)
        report(directory)
    except KeyboardInterrupt:
        _say_how_to_go_on(directory)
        raise typer.Exit(FAILED) from None


@app.command(
    epilog="Examples:\n\nfalconcal report runs/digits\n\nfalconcal report runs/digits --paper"
)
def report(
    directory: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    paper: Annotated[
        bool, typer.Option("--paper", help="Also write the tables as LaTeX and Markdown.")
    ] = False,
) -> None:
    """Write the summary, the figures and the report of an output folder again."""
    from falconcal.report import write_paper, write_report

    if directory.is_dir():
        output.print("Writing the report ...", highlight=False)
    page = write_report(directory)
    output.print(_summary(directory))
    output.print(f"Report: {page}", highlight=False, markup=False, soft_wrap=True)
    for file in write_paper(directory) if paper else ():
        output.print(f"Tables: {file}", highlight=False, markup=False, soft_wrap=True)


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
    page = write_score_page(found, directory, title=file.name, classes=read.classes)
    _show_score(found)
    output.print(f"Page: {page}", highlight=False, markup=False, soft_wrap=True)


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
) -> None:
    """Answer inputs with a saved model: label, confidence, entropy, and what to reject.

    One batch is in memory at a time; the output file appears when it is complete.
    """
    from falconcal.predicting import check_output, choose_threshold, open_source, predict_into
    from falconcal.progress import counting
    from falconcal.saving import load

    name = source.resolve().name if source.is_dir() else source.stem
    target = out if out is not None else Path("runs") / "predict" / f"{name}.csv"
    check_output(target, source)
    saved = load(model_file(model))
    threshold = choose_threshold(saved.facts, reject_below, risk)
    opened = open_source(source, saved.facts)
    with counting(errors, source.name, opened.total) as advance:
        outcome = predict_into(target, saved, opened, threshold, advance)
    _show_outcome(outcome, target, threshold)


@data.command("list", epilog="Example:\n\nfalconcal data list")
def list_data() -> None:
    """List the files of each dataset, where they lie, and what is to be downloaded."""
    from falconcal.data.holdings import holdings

    for one in holdings():
        where = str(one.place or f"to download, {one.megabytes:,.1f} MB")
        words = f"{one.dataset:<16}  {one.file:<26}  {where}"
        output.print(words, highlight=False, markup=False, soft_wrap=True)


@data.command(epilog="Example:\n\nfalconcal data fetch mnist")
def fetch(
    name: Annotated[str, typer.Argument(help="A dataset of falconcal data list.")],
    offline: OfflineOption = False,
) -> None:
    """Download what is not here of a dataset, each file checked against its checksum."""
    from falconcal.data.holdings import fetch_dataset

    _stay_offline(offline)
    for path in fetch_dataset(name):
        output.print(str(path), highlight=False, markup=False, soft_wrap=True)


@data.command(epilog="Examples:\n\nfalconcal data verify\n\nfalconcal data verify mnist")
def verify(
    name: Annotated[str | None, typer.Argument(help="A dataset; all of them if none.")] = None,
) -> None:
    """Compare the files that are here with the published checksums."""
    from falconcal.data.holdings import verify_dataset
    from falconcal.data.sources import SOURCES

    verdicts = []
    for dataset in [name] if name is not None else SOURCES:
        for file, verdict in verify_dataset(dataset):
            verdicts.append(verdict)
            words = f"{dataset}: {file}: {verdict}"
            output.print(words, highlight=False, markup=False, soft_wrap=True)
    if "not as published" in verdicts:
        raise UserError("some files are not as published: what is read from them may differ.")


def _stay_offline(wanted: bool) -> None:
    if wanted:
        os.environ["FALCONCAL_OFFLINE"] = "1"


@app.command("list", epilog="Examples:\n\nfalconcal list\n\nfalconcal list shifts")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(help="methods, studies, shifts, metrics, datasets or models; all if none."),
    ] = None,
) -> None:
    """List what there is, with a line on each."""
    from falconcal.catalogue import CATALOGUE

    if kind is not None and kind not in CATALOGUE:
        raise unknown("list", kind, CATALOGUE)
    for name in [kind] if kind is not None else CATALOGUE:
        _show_list(name, CATALOGUE[name]())


def _show_outcome(outcome: "Outcome", target: Path, threshold: float | None) -> None:
    words = f"{outcome.examples:,} examples"
    if threshold is not None:
        words += f", {outcome.rejected:,} rejected, confidence below {threshold:.6g}"
    output.print(f"{words}. Answers: {target}", highlight=False, markup=False, soft_wrap=True)
    if outcome.damaged:
        named = [f"  {name}: {why}" for name, why in list(outcome.damaged.items())[:DAMAGED]]
        more = len(outcome.damaged) - DAMAGED
        raise UserError(
            f"{len(outcome.damaged):,} images could not be read; their rows are empty:\n"
            + "\n".join([*named, *([f"  and {more:,} more"] if more > 0 else [])])
        )


def _show_list(kind: str, entries: Mapping[str, str]) -> None:
    output.print(kind, style="bold", highlight=False)
    width = max(len(name) for name in entries)
    for name, line in entries.items():
        output.print(f"  {name:<{width}}  {line}", highlight=False, markup=False, soft_wrap=True)


def _summary(directory: Path) -> Table:
    """Return the summary of an output folder for a terminal, a row a method."""
    from falconcal.report import headline

    return _table("Summary", *headline(directory))


def _show_score(found: "Assessment") -> None:
    from falconcal.report.score import group_rows, interval_notes, metric_rows
    from falconcal.report.score_charts import bins_words

    title = f"{found.examples:,} examples, {found.classes} classes, {bins_words(found)}"
    output.print(_table(title, ["Metric", "Value", "95 % interval"], metric_rows(found)))
    for note in interval_notes(found):
        output.print(note, highlight=False, style="dim")
    if found.groups:
        title = f"Worst of {len(found.groups)} groups by {found.group_metric}"
        heading = ["Group", "Examples", found.group_metric, "95 % interval"]
        output.print(_table(title, heading, group_rows(found, WORST)))


def _table(title: str, heading: list[str], rows: list[list[str]]) -> Table:
    """Return text in rows for a terminal; it is shown as it is, whatever brackets it holds."""
    shown = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, text in enumerate(heading):
        longest = max(len(word) for word in text.split())  # headings break between words alone
        shown.add_column(text, justify="right" if number else "left", min_width=longest)
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def _say_how_to_go_on(directory: Path) -> None:
    from falconcal.studies.store import Store

    words = shlex.join(["falconcal", *sys.argv[1:]])
    errors.print(
        f"Interrupted. Complete runs in {directory}: {len(Store(directory).runs())}; they stay. "
        f"To go on: {words}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
