"""The report: a pure function of what a study stored. No other stage knows that it exists."""

import io
from pathlib import Path

import polars

from falconcal.files import write_bytes, write_text
from falconcal.report.columns import HEADLINE
from falconcal.report.evidence import gather_evidence
from falconcal.report.machine import summary_json
from falconcal.report.page import render, sections
from falconcal.report.paper import write_paper
from falconcal.report.results import load_results
from falconcal.report.rows import rows_csv
from falconcal.report.summary import make_summary, markdown, summary_cells

__all__ = ["headline", "summary_table", "write_paper", "write_report"]


def write_report(directory: Path) -> Path:
    """Write the summary, the figures, the comparisons and the page; return the page.

    All is made before anything is written, so a failure leaves an older report as it was.
    """
    results = load_results(directory)
    summary, evidence = make_summary(results), gather_evidence(results)
    parts = sections(results, evidence)
    figures = [figure for part in parts for figure in part.figures]
    files = {f"figures/{figure.name}.svg": figure.svg() for figure in figures}
    files["rows.csv"] = rows_csv(results)
    files["summary.md"] = markdown(results, summary, evidence)
    files["summary.json"] = summary_json(results, summary, evidence)
    files["report.html"] = render(results, summary, evidence, parts)
    write_bytes(directory / "comparisons.parquet", _parquet(evidence.table))
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


def _parquet(table: polars.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
