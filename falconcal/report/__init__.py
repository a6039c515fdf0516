"""The report: a pure function of what a study stored. No other stage knows that it exists."""

from pathlib import Path

import polars

from falconcal.files import write_text
from falconcal.report.page import render, sections
from falconcal.report.results import load_results
from falconcal.report.summary import HEADLINE, make_summary, markdown, summary_cells

__all__ = ["headline", "summary_table", "write_report"]


def write_report(directory: Path) -> Path:
    """Write summary.md, figures/*.svg and report.html into a study's directory; return the page.

    All is made before anything is written, so a failure leaves an older report as it was.
    """
    results = load_results(directory)
    summary, parts = make_summary(results), sections(results)
    figures = [figure for part in parts for figure in part.figures]
    files = {f"figures/{figure.name}.svg": figure.svg() for figure in figures}
    files["summary.md"] = markdown(results, summary)
    files["report.html"] = render(results, summary, parts)
    for name, text in files.items():
        write_text(directory / name, text)
    return directory / "report.html"


def summary_table(directory: Path) -> polars.DataFrame:
    """Return one row a method: means over seeds, with standard deviations where there are several.

    Each figure has its deviation beside it, under its name and ``_deviation``; figures that are
    shares run from 0 to 1, times are in seconds.
    """
    return make_summary(load_results(directory))


def headline(directory: Path) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of the headline table as text."""
    return summary_cells(summary_table(directory), HEADLINE)
