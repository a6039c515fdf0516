"""The report: a pure function of what a study stored. No other stage knows that it exists."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars

from falconcal.errors import unknown
from falconcal.files import write_bytes
from falconcal.report.columns import HEADLINE
from falconcal.report.compare import check_target, load_comparison
from falconcal.report.evidence import gather_evidence
from falconcal.report.machine import summary_json
from falconcal.report.page import render, sections
from falconcal.report.panels import FORMATS
from falconcal.report.paper import write_paper
from falconcal.report.results import Results, load_results
from falconcal.report.rows import rows_csv
from falconcal.report.summary import make_summary, markdown, summary_cells

__all__ = [
    "headline",
    "load_results",
    "summary_table",
    "write_comparison",
    "write_paper",
    "write_report",
]


def write_report(directory: Path, formats: Iterable[str] = ("svg",)) -> Path:
    """Write the summary, the figures, the comparisons and the page; return the page.

    Each figure is a file of its own in every format: svg, png, pdf. All is made before anything is
    written, so a failure leaves an older report as it was.
    """
    return _write(load_results(directory), directory, _known(formats))


def write_comparison(
    directories: Sequence[Path], target: Path, formats: Iterable[str] = ("svg",)
) -> tuple[Path, Results]:
    """Write the report of several output folders into one that is none; return page and results."""
    endings = _known(formats)
    check_target(target, directories)
    results = load_comparison(directories)
    return _write(results, target, endings), results


def _write(results: Results, directory: Path, endings: list[str]) -> Path:
    summary, evidence = make_summary(results), gather_evidence(results)
    parts = sections(results, evidence)
    files = {
        f"figures/{name}": content
        for part in parts
        for figure in part.figures
        for name, content in figure.files(endings).items()
    }
    files["rows.csv"] = rows_csv(results).encode()
    files["summary.md"] = markdown(results, summary, evidence).encode()
    files["summary.json"] = summary_json(results, summary, evidence).encode()
    files["comparisons.parquet"] = _parquet(evidence.table)
    files["report.html"] = render(results, summary, evidence, parts).encode()
    for name, content in files.items():
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


def _known(formats: Iterable[str]) -> list[str]:
    endings = list(dict.fromkeys(formats))
    for ending in endings:
        if ending not in FORMATS:
            raise unknown("format of figures", ending, FORMATS)
    return endings


def _parquet(table: polars.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
