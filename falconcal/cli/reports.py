"""Commands for reports: of one output folder, or of several in comparison."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from falconcal.cli.app import app, split_formats
from falconcal.cli.options import FiguresOption, PaperOption
from falconcal.cli.terminal import output, print_text, show_summary

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
) -> None:
    """Write the report of an output folder again: summary, figures and HTML page."""
    from falconcal.report import check_formats, load_results

    formats = check_formats(split_formats(figures))
    if directory.is_dir():
        output.print("Writing the report ...", highlight=False)
    _write(load_results(directory), directory, paper, formats)


def _write(results: "Results", directory: Path, paper: bool, formats: list[str]) -> None:
    """Write and show the tables before the figures, which may fail."""
    from falconcal.report import write_page, write_paper, write_tables

    evidence = write_tables(results, directory)
    tables = write_paper(directory, results) if paper else []
    show_summary(results)
    for file in tables:
        print_text(f"Tables: {file}")
    print_text(f"Report: {write_page(results, directory, evidence, formats)}")


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
    output.print("Writing the report ...", highlight=False)
    _write(load_comparison(directories), target, paper, formats)
