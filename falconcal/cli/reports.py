"""Commands for reports: of one output folder, or of several in comparison."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from falconcal.cli.app import app, split_formats
from falconcal.cli.options import FiguresOption, JsonOption, PaperOption
from falconcal.cli.terminal import errors, output, print_text, show_summary

if TYPE_CHECKING:
    from falconcal.report.results import Results


@app.command(
    epilog="Examples:\n\n"
    "falconcal report runs/digits\n\n"
    "falconcal report runs/digits --paper --figures svg,png,pdf"
)
def report(
    directory: Annotated[Path, typer.Argument(help="Output folder of falconcal run.")],
    paper: PaperOption = False,
    figures: FiguresOption = "svg",
    json: JsonOption = False,
) -> None:
    """Write the report of an output folder again: summary, figures and HTML page."""
    from falconcal.report import check_formats, load_results

    formats = check_formats(split_formats(figures))
    if directory.is_dir() and not json:
        output.print("Writing the report ...", highlight=False)
    _write(load_results(directory), directory, paper, formats, json)


def _write(
    results: "Results", directory: Path, paper: bool, formats: list[str], json: bool
) -> None:
    """Write and show the tables before the figures, which may fail."""
    from falconcal.cli.showcase import show_showcase
    from falconcal.report import write_page, write_paper, write_tables

    evidence = write_tables(results, directory)
    tables = write_paper(directory, results) if paper else []
    if json:
        sys.stdout.write((directory / "summary.json").read_text(encoding="utf-8"))
    else:
        show_summary(results)
        show_showcase(results)
    console = errors if json else output
    for file in tables:
        print_text(f"Tables: {file}", console)
    print_text(f"Report: {write_page(results, directory, evidence, formats)}", console)


@app.command(
    epilog="Examples:\n\n"
    "falconcal compare runs/digits runs/tuned\n\n"
    "falconcal compare runs/before runs/after --out runs/both"
)
def compare(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR DIR...", help="Output folders of falconcal run.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Output folder (default: runs/compare/NAMES).")
    ] = None,
    paper: PaperOption = False,
    figures: FiguresOption = "svg",
    json: JsonOption = False,
) -> None:
    """Compare the methods of several output folders in one report.

    All must have been tested on the same examples; shifts that not all of them have are left out.
    The folders are not changed.
    """
    from falconcal.report import check_formats, check_target, load_comparison
    from falconcal.report.comparison import folder_labels

    formats = check_formats(split_formats(figures))
    both = "+".join(label.replace("/", "-") for label in folder_labels(directories))
    target = out if out is not None else Path("runs") / "compare" / both
    check_target(target, directories)
    if not json:
        output.print("Writing the report ...", highlight=False)
    _write(load_comparison(directories), target, paper, formats, json)
