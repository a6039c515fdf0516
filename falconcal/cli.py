"""The command: parse, call one function, exit code."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import falconcal
from falconcal.errors import UsageError, UserError, unknown
from falconcal.layout import file_name, model_file
from falconcal.terminal import (
    announce_search,
    errors,
    output,
    say,
    show_failures,
    show_list,
    show_outcome,
    show_score,
    show_summary,
    show_trial,
    show_trials,
)

if TYPE_CHECKING:
    from falconcal.layout import RunKey
    from falconcal.studies import Study
    from falconcal.studies.crew import MakeCrew

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
OfflineOption = Annotated[bool, typer.Option("--offline", help="Download nothing.")]
FiguresOption = Annotated[
    str, typer.Option(metavar="FORMATS", help="Formats of the figures' files: svg, png, pdf.")
]

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


def main() -> None:
    """Run the command; a user's mistake gets a message, only a mistake of ours a traceback."""
    try:
        sys.path.append(os.getcwd())  # noqa: PTH109 - where package.module:Name may lie
        app()
    except UsageError as error:
        _leave(error, WRONG_USAGE)
    except (UserError, OSError) as error:
        _leave(error, FAILED)
    except RuntimeError:
        # where another process has told what went wrong, that its connection is gone is no news
        if _tells():
            raise
        sys.exit(FAILED)
    except SystemExit as end:
        # typer leaves with 130 when interrupted; here that is a failure like any other
        sys.exit(FAILED if end.code == INTERRUPTED else end.code)


def _leave(error: Exception, code: int) -> None:
    if _tells():
        errors.print(f"Error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def _tells() -> bool:
    """Tell whether this process tells of an error: of several that torchrun started, one does."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return True
    from falconcal.processes import first_to_fail

    return first_to_fail()


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
    "falconcal run digits --settings runs/tune/digits/best.toml --out runs/tuned\n\n"
    "falconcal run digits --seeds 3 --workers 4\n\n"
    "falconcal run digits --seeds 3 --ray auto\n\n"
    "falconcal run digits --devices 2\n\n"
    "torchrun --nproc-per-node 2 -m falconcal run digits\n\n"
    "falconcal run mnist --smoke\n\n"
    "falconcal run my_study.toml"
)
def run(
    study: Annotated[str, typer.Argument(help="Name of a study, or the path of its TOML file.")],
    methods: Annotated[
        str | None, typer.Option(help="Only these methods of the study, separated by commas.")
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(help="Only these variants, separated by commas; default is the plain one."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, from 0 on.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; runs/STUDY unless given.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: key=value. May be given often."),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings of methods that falconcal tune chose: best.toml.")
    ] = None,
    offline: OfflineOption = False,
    workers: Annotated[
        int, typer.Option(help="Processes of this machine that do a run each at a time.")
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Do the runs on this Ray cluster; local starts one."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Of each run; torch's own number, shared out, unless given."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="Processes that train together, on a device each.")
    ] = None,
    num_nodes: Annotated[int | None, typer.Option(help="Machines that train together.")] = None,
    strategy: Annotated[str | None, typer.Option(help="Of Lightning Fabric, such as ddp.")] = None,
    precision: Annotated[str | None, typer.Option(help="Such as bf16-mixed.")] = None,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke",
            help="Few examples, one epoch, few levels: whether all runs, in seconds. The output "
            "folder is runs/smoke/STUDY unless given.",
        ),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write event files into OUT/tensorboard.")
    ] = False,
) -> None:
    """Train a study's methods, measure them under shift, and write a report.

    Running again skips what is complete and finishes what is not. A run that fails does not stop
    the others.
    """
    from falconcal.processes import first, joined
    from falconcal.studies import find_study
    from falconcal.studies.study import placed

    _stay_offline(offline)
    wanted = [*(changes or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    where: dict[str, int | str | None] = {"devices": devices, "num_nodes": num_nodes}
    where |= {"strategy": strategy, "precision": precision}
    with joined():
        output.quiet = not first()
        found = placed(find_study(study, wanted, settings, smoke), where)
        home = Path("runs") / "smoke" if smoke else Path("runs")
        directory = out if out is not None else home / found.name
        crew = _crew(workers, ray, threads)
        names = _chosen(methods), _chosen(variants)
        failed = _run(found, directory, *names, crew, tensorboard)
        if first():
            _conclude(directory, failed)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _chosen(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _crew(workers: int, ray: str | None, threads: int | None) -> "MakeCrew":
    """Return who does the runs."""
    from falconcal.studies.crew import choose_crew

    if ray is None:
        return choose_crew(workers, threads)
    from falconcal.studies.ray_cluster import need_ray, on_ray

    need_ray(workers)
    return on_ray(ray, threads)


def _run(
    study: "Study",
    directory: Path,
    methods: list[str] | None,
    variants: list[str] | None,
    crew: "MakeCrew",
    tensorboard: bool,
) -> dict["RunKey", str]:
    from falconcal.progress import make_progress
    from falconcal.studies.runner import run_study
    from falconcal.studies.tracking import tracked

    try:
        with (
            make_progress(output) as progress,
            tracked(progress, directory, tensorboard) as hear,
        ):
            return run_study(study, directory, hear, methods, variants, crew)
    except KeyboardInterrupt:
        if _tells():
            _say_how_to_go_on(directory)
        raise typer.Exit(FAILED) from None


def _conclude(directory: Path, failed: dict["RunKey", str]) -> None:
    """Write the report of what is complete, and say what failed and how to go on."""
    if (directory / "rows.parquet").exists():
        report(directory)
    if failed:
        show_failures(directory, failed, _command())
        raise typer.Exit(FAILED)


@app.command(
    epilog="Examples:\n\n"
    "falconcal tune digits --method falcon --trials 20\n\n"
    "falconcal tune digits --method falcon --trials 20 --workers 2 --set tuning.epochs=10\n\n"
    "falconcal tune digits --method dropout --trials 8 "
    "--set 'search.dropout.l2_weight={low=1e-4, high=0.1, log=true}'\n\n"
    "falconcal run digits --settings runs/tune/digits/best.toml --out runs/tuned"
)
def tune(
    study: Annotated[str, typer.Argument(help="Name of a study, or the path of its TOML file.")],
    method: Annotated[
        str, typer.Option(help="The method of the study; one with a base is tuned through it.")
    ],
    trials: Annotated[
        int, typer.Option(help="Number of trials in all, those that are done already included.")
    ],
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of Optuna; trials.db in the output folder unless given."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; runs/tune/STUDY unless given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the points drawn, and of every training.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes, a thread each.")] = 1,
    prune: Annotated[
        bool, typer.Option(help="End trials early that fall behind the median of the others.")
    ] = True,
    also_score_test: Annotated[
        bool,
        typer.Option(
            "--also-score-test",
            help="Measure every complete trial on test data too, once it is judged, to see how "
            "well the criterion ranks; nothing is chosen by it.",
        ),
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: key=value. May be given often."),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings chosen before, such as the reference's.")
    ] = None,
) -> None:
    """Choose a method's settings on validation data alone, and keep every trial.

    The lowest criterion wins among trials that are accurate enough. Running again goes on.
    """
    from falconcal.tuning import need_optuna

    need_optuna()
    from falconcal.studies import find_study
    from falconcal.tuning.choice import check_chosen
    from falconcal.tuning.search import Search
    from falconcal.tuning.search import tune as search_for

    found = find_study(study, changes or [], settings)
    directory = out if out is not None else Path("runs") / "tune" / found.name
    search = Search(
        found, method, trials, directory, storage, seed, prune=prune,
        also_score_test=also_score_test,
    )  # fmt: skip
    try:
        announce_search(search)
        rows = search_for(search, workers, show_trial)
    except KeyboardInterrupt:
        words = f"Interrupted. Trials that ended stay in {directory}. To go on: {_command()}"
        say(words, errors)
        raise typer.Exit(FAILED) from None
    show_trials(directory, rows)
    check_chosen(rows, search.place.name)


@app.command(
    epilog="Examples:\n\n"
    "falconcal report runs/digits\n\n"
    "falconcal report runs/digits --paper --figures svg,png,pdf"
)
def report(
    directory: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    paper: Annotated[
        bool, typer.Option("--paper", help="Also write the tables as LaTeX and Markdown.")
    ] = False,
    figures: FiguresOption = "svg",
) -> None:
    """Write the summary, the figures and the report of an output folder again."""
    from falconcal.report import load_results, write_paper, write_report

    if directory.is_dir():
        output.print("Writing the report ...", highlight=False)
    page = write_report(directory, _names(figures))
    show_summary(load_results(directory))
    say(f"Report: {page}")
    for file in write_paper(directory) if paper else ():
        say(f"Tables: {file}")


@app.command(
    epilog="Examples:\n\n"
    "falconcal compare runs/digits runs/tuned\n\n"
    "falconcal compare runs/before runs/after --out runs/both"
)
def compare(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR DIR...", help="Output folders of runs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Output folder; runs/compare/NAMES unless given.")
    ] = None,
    figures: FiguresOption = "svg",
) -> None:
    """Put several output folders in one report, methods of all against each other.

    They must have been tested on the same examples; shifts that they do not share are left out.
    The folders stay as they are.
    """
    from falconcal.report import write_comparison
    from falconcal.report.compare import folder_labels

    names = "+".join(label.replace("/", "-") for label in folder_labels(directories))
    target = out if out is not None else Path("runs") / "compare" / names
    output.print("Writing the report ...", highlight=False)
    page, results = write_comparison(directories, target, _names(figures))
    show_summary(results)
    say(f"Report: {page}")


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
    show_score(found)
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
    show_outcome(outcome, target, threshold)


@app.command(
    epilog="Examples:\n\n"
    "falconcal shift digits\n\n"
    "falconcal shift cifar10 --shifts corrupt_fog,corrupt_snow --examples 2 --out seen.png"
)
def shift(
    dataset: Annotated[str, typer.Argument(help="Name of a dataset, or package.module:load.")],
    shifts: Annotated[
        str | None,
        typer.Option(help="Only these shifts, separated by commas; those usual for the data."),
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Test examples of each shift.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="PNG file; runs/shift/DATASET.png unless given.")
    ] = None,
    offline: OfflineOption = False,
) -> None:
    """Draw one picture of what a model will see: shifts down, levels across."""
    from falconcal.data import load_dataset
    from falconcal.files import write_bytes
    from falconcal.studies.sheet import make_sheet

    _stay_offline(offline)
    target = out if out is not None else Path("runs") / "shift" / f"{file_name(dataset)}.png"
    if target.suffix.lower() != ".png":
        raise UsageError(f"--out expects a PNG file, got {target}.")
    write_bytes(target, make_sheet(load_dataset(dataset), _chosen(shifts), examples))
    say(f"Picture: {target}")


@data.command("list", epilog="Example:\n\nfalconcal data list")
def list_data() -> None:
    """List the files of each dataset, where they lie, and what is to be downloaded."""
    from falconcal.data.holdings import holdings

    for one in holdings():
        where = str(one.place or f"to download, {one.megabytes:,.1f} MB")
        words = f"{one.dataset:<16}  {one.file:<26}  {where}"
        say(words)


@data.command(epilog="Example:\n\nfalconcal data fetch mnist")
def fetch(
    name: Annotated[str, typer.Argument(help="A dataset of falconcal data list.")],
    offline: OfflineOption = False,
) -> None:
    """Download what is not here of a dataset, each file checked against its checksum."""
    from falconcal.data.holdings import fetch_dataset

    _stay_offline(offline)
    for path in fetch_dataset(name):
        say(str(path))


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
            say(words)
    if "not as published" in verdicts:
        raise UserError("some files are not as published: what is read from them may differ.")


def _stay_offline(wanted: bool) -> None:
    if wanted:
        os.environ["FALCONCAL_OFFLINE"] = "1"


@app.command("list", epilog="Examples:\n\nfalconcal list\n\nfalconcal list shifts")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="methods, studies, shifts, outliers, metrics, datasets or models; all if none."
        ),
    ] = None,
) -> None:
    """List what there is, with a line on each."""
    from falconcal.catalogue import CATALOGUE

    if kind is not None and kind not in CATALOGUE:
        raise unknown("list", kind, CATALOGUE)
    for name in [kind] if kind is not None else CATALOGUE:
        show_list(name, CATALOGUE[name]())


def _command() -> str:
    return shlex.join(["falconcal", *sys.argv[1:]])


def _say_how_to_go_on(directory: Path) -> None:
    from falconcal.studies.store import Store

    complete = len(Store(directory).runs())
    words = f"Interrupted. Complete runs in {directory}: {complete}; they stay."
    say(f"{words} To go on: {_command()}", errors)
