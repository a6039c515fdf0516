"""The report: a pure function of what a study stored. No other stage knows that it exists."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars

from falconcal.errors import unknown_name_error
from falconcal.io.atomic import as_path, write_bytes
from falconcal.report.charts.engine import DRAWING_FORMATS, DrawingError, not_drawn
from falconcal.report.charts.figure import drawn
from falconcal.report.comparison import check_target, load_comparison
from falconcal.report.pages.report_page import render, sections
from falconcal.report.pages.score_page import write_score_page
from falconcal.report.pages.side_by_side_page import write_side_by_side
from falconcal.report.results import Results, load_results
from falconcal.report.study_evidence import StudyEvidence, gather_evidence
from falconcal.report.tables.csv_files import rows_csv
from falconcal.report.tables.headline_columns import HEADLINE
from falconcal.report.tables.paper_tables import write_paper
from falconcal.report.tables.summary import make_summary, markdown, summary_cells
from falconcal.report.tables.summary_json import summary_json

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
    "write_score_page",
    "write_side_by_side",
    "write_tables",
]


def write_report(directory: str | Path, formats: Iterable[str] = ("svg",)) -> Path:
    """Write the tables, the comparisons, the figures and the page of an output folder.

    The tables are written before anything is drawn; a drawing that fails leaves an older page and
    its figures as they were.

    Args:
        directory: The output folder of ``falconcal run``.
        formats: Formats of the figures, of svg, png and pdf; each figure is one file in each of
            them.

    Returns:
        The page, ``report.html`` in the folder.

    Raises:
        UserError: If a file is missing or damaged, or runs lack shifts; the message names it.
        UsageError: If a format is not known.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import write_report
        >>> write_report(Path("nowhere"))
        Traceback (most recent call last):
        falconcal.errors.UserError: expected an output folder of falconcal run, got nowhere: ...
    """
    endings, directory = check_formats(formats), as_path(directory)
    results = load_results(directory)
    return write_page(results, directory, write_tables(results, directory), endings)


def write_comparison(
    directories: Sequence[Path], target: Path, formats: Iterable[str] = ("svg",)
) -> tuple[Path, Results]:
    """Write one report of several output folders into another folder.

    Args:
        directories: Two or more output folders, tested on the same examples.
        target: The folder to write to, which holds no study.
        formats: Formats of the figures, of svg, png and pdf; each figure is one file in each of
            them.

    Returns:
        The page, and the results of all folders together.

    Raises:
        UsageError: If there are not two different folders, or the target holds a study or cannot be
            written to.
        UserError: If the folders were tested on other examples or share no tested shift.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import write_comparison
        >>> write_comparison([Path("one")], Path("both"))
        Traceback (most recent call last):
        falconcal.errors.UsageError: expected two or more output folders to compare, got 1; ...
    """
    endings = check_formats(formats)
    check_target(target, directories)
    results = load_comparison(directories)
    return write_page(results, target, write_tables(results, target), endings), results


def write_tables(results: Results, directory: Path) -> StudyEvidence:
    """Write ``summary.md``, ``summary.json``, ``rows.csv`` and ``comparisons.parquet``.

    Args:
        results: What ``load_results`` or ``load_comparison`` read.
        directory: The folder to write to.

    Returns:
        The intervals, differences and tests of the study.

    Raises:
        UserError: If stored scores are missing, damaged, or of other examples.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import load_results, write_tables
        >>> write_tables(load_results(Path("nowhere")), Path("tables"))
        Traceback (most recent call last):
        falconcal.errors.UserError: expected an output folder of falconcal run, got nowhere: ...
    """
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
    results: Results, directory: Path, evidence: StudyEvidence, formats: Sequence[str] = ("svg",)
) -> Path:
    """Draw the figures, and write them and the page, all of them or none.

    Args:
        results: What ``load_results`` or ``load_comparison`` read.
        directory: The folder to write to.
        evidence: What ``write_tables`` returned.
        formats: Formats of the figures, of svg, png and pdf; each figure is one file in each of
            them.

    Returns:
        The page, ``report.html`` in the folder.

    Raises:
        UserError: If a figure cannot be drawn; an older page stays as it was.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import load_results, write_page, write_tables
        >>> results = load_results(Path("nowhere"))
        Traceback (most recent call last):
        falconcal.errors.UserError: expected an output folder of falconcal run, got nowhere: ...
    """
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
    """Return the headline figures of an output folder: one row per method, means over seeds.

    Each figure has its standard deviation over seeds beside it, in a column that ends in
    ``_deviation``, empty for a single seed. Shares run from 0 to 1, times are in seconds.

    Args:
        directory: The output folder of ``falconcal run``.

    Returns:
        Variant, method, series, seeds and the figures.

    Raises:
        UserError: If a file is missing or damaged, or runs lack shifts; the message names it.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import summary_table
        >>> summary_table(Path("nowhere"))
        Traceback (most recent call last):
        falconcal.errors.UserError: expected an output folder of falconcal run, got nowhere: ...
    """
    return make_summary(load_results(directory))


def headline(
    results: Results, deviations: bool = True, figures: int | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return the headline table as text, as the terminal shows it.

    Args:
        results: What ``load_results`` or ``load_comparison`` read.
        deviations: Whether the standard deviation between seeds stands beside each mean.
        figures: How many of the figures there are, from the first; None has all.

    Returns:
        The heading and the rows, one per method.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import headline, load_results
        >>> headline(load_results(Path("nowhere")))
        Traceback (most recent call last):
        falconcal.errors.UserError: expected an output folder of falconcal run, got nowhere: ...
    """
    return summary_cells(make_summary(results), HEADLINE[:figures], deviations)


def check_formats(formats: Iterable[str]) -> list[str]:
    """Return the formats of figures, each once.

    Args:
        formats: Names among svg, png and pdf.

    Returns:
        The formats in the order given.

    Raises:
        UsageError: If a format is not known.

    Example:
        >>> from falconcal.report import check_formats
        >>> check_formats(["png", "svg", "png"])
        ['png', 'svg']
    """
    endings = list(dict.fromkeys(formats))
    for ending in endings:
        if ending not in DRAWING_FORMATS:
            raise unknown_name_error("format of figures", ending, DRAWING_FORMATS)
    return endings


def _parquet(table: polars.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
