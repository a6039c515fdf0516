"""Reports: of one output folder, or of several against each other."""

from pathlib import Path
from typing import Annotated

import typer

from falconcal.cli.app import FiguresOption, app, names
from falconcal.terminal import output, say, show_summary

PaperOption = Annotated[
    bool, typer.Option("--paper", help="Also write the tables as LaTeX and Markdown.")
]


@app.command(
    epilog="Examples:\n\n"
    "falconcal report runs/digits\n\n"
    "falconcal report runs/digits --paper --figures svg,png,pdf"
)
def report(
    directory: Annotated[Path, typer.Argument(help="The output folder of a run.")],
    paper: PaperOption = False,
    figures: FiguresOption = "svg",
) -> None:
    """Write the summary, the figures and the report of an output folder again."""
    from falconcal.report import load_results, write_paper, write_report

    if directory.is_dir():
        output.print("Writing the report ...", highlight=False)
    page = write_report(directory, names(figures))
    show_summary(load_results(directory))
    say(f"Report: {page}")
    _say_tables(write_paper(directory) if paper else [])


def _say_tables(files: list[Path]) -> None:
    for file in files:
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
    paper: PaperOption = False,
    figures: FiguresOption = "svg",
) -> None:
    """Put several output folders in one report, methods of all against each other.

    They must have been tested on the same examples; shifts that they do not share are left out.
    The folders stay as they are.
    """
    from falconcal.report import write_comparison, write_paper
    from falconcal.report.compare import folder_labels

    both = "+".join(label.replace("/", "-") for label in folder_labels(directories))
    target = out if out is not None else Path("runs") / "compare" / both
    output.print("Writing the report ...", highlight=False)
    page, results = write_comparison(directories, target, names(figures))
    show_summary(results)
    say(f"Report: {page}")
    _say_tables(write_paper(target, results) if paper else [])
