"""The report: a pure function of what a study stored. No other stage knows that it exists."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars

from falconcal.errors import unknown
from falconcal.files import write_bytes
from falconcal.report.columns import HEADLINE
from falconcal.report.compare import check_target, load_comparison
from falconcal.report.engine import FORMATS, DrawingError, not_drawn
from falconcal.report.evidence import Evidence, gather_evidence
from falconcal.report.machine import summary_json
from falconcal.report.page import render, sections
from falconcal.report.panels import drawn
from falconcal.report.paper import write_paper
from falconcal.report.results import Results, load_results
from falconcal.report.rows import rows_csv
from falconcal.report.summary import make_summary, markdown, summary_cells

__all__ = [
    "check_formats",
    "check_target",
    "headline",
    "load_comparison",
    "load_results",
    "summary_table",
    "write_comparison",
    "write_page",
    "write_paper",
    "write_report",
    "write_tables",
]


def write_report(directory: Path, formats: Iterable[str] = ("svg",)) -> Path:
    """Write the summary, the comparisons, the figures and the page; return the page.

    Each figure is a file of its own in every format: svg, png, pdf. Tables are written before
    anything is drawn; a drawing that fails leaves an older page and its figures as they were.
    """
    endings = check_formats(formats)
    results = load_results(directory)
    return write_page(results, directory, write_tables(results, directory), endings)


def write_comparison(
    directories: Sequence[Path], target: Path, formats: Iterable[str] = ("svg",)
) -> tuple[Path, Results]:
    """Write the report of several output folders into one that is none; return page and results."""
    endings = check_formats(formats)
    check_target(target, directories)
    results = load_comparison(directories)
    return write_page(results, target, write_tables(results, target), endings), results


def write_tables(results: Results, directory: Path) -> Evidence:
    """Write all that needs no drawing, made before it is written; return the comparisons."""
    summary, evidence = make_summary(results), gather_evidence(results)
    files = {
        "rows.csv": rows_csv(results).encode(),
        "summary.md": markdown(results, summary, evidence).encode(),
        "summary.json": summary_json(results, summary, evidence).encode(),
        "comparisons.parquet": _parquet(evidence.table),
    }
    for name, content in files.items():
        write_bytes(directory / name, content)
    return evidence


def write_page(
    results: Results, directory: Path, evidence: Evidence, formats: Sequence[str] = ("svg",)
) -> Path:
    """Draw the figures and write them and the page, all or none; return the page."""
    parts = sections(results, evidence)
    try:
        figures = drawn([figure for part in parts for figure in part.figures], formats)
        page = render(results, make_summary(results), evidence, parts)
    except DrawingError as error:
        raise not_drawn(error, directory, "report.html", "summary.md, rows.csv") from None
    files = {f"figures/{name}": content for name, content in figures.items()}
    for name, content in {**files, "report.html": page.encode()}.items():
        write_bytes(directory / name, content)
    return directory / "report.html"


def summary_table(directory: Path) -> polars.DataFrame:
    """Return one row a method: means over seeds, with standard deviations where there are several.

    Each figure has its deviation beside it, under its name and ``_deviation``; figures that are
    shares run from 0 to 1, times are in seconds.
    """
    return make_summary(load_results(directory))


def headline(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of the headline table as text."""
    return summary_cells(make_summary(results), HEADLINE)


def check_formats(formats: Iterable[str]) -> list[str]:
    """Return the formats of figures, each once; one that is not known is refused."""
    endings = list(dict.fromkeys(formats))
    for ending in endings:
        if ending not in FORMATS:
            raise unknown("format of figures", ending, FORMATS)
    return endings


def _parquet(table: polars.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
