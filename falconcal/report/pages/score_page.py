"""The page of one set of predictions: ``score.html``, ``metrics.json`` and the figures as SVG."""

from collections.abc import Callable, Sequence
from pathlib import Path

import falconcal
from falconcal.errors import UserError, described, readable
from falconcal.evaluation.assessment import MOST_CLASSWISE, Assessment, MetricValue
from falconcal.io.atomic import as_path, obstacle, write_bytes
from falconcal.metrics import BINS, METRICS
from falconcal.report.charts.engine import DrawingError, not_drawn
from falconcal.report.charts.figure import Figure, drawn
from falconcal.report.charts.score_charts import bins_words, reliability_table, score_figures
from falconcal.report.pages.report_page import Cell, HtmlTable, render_template

NO_INTERVAL = "-"
MOST_CLASSES = 50  # named on the page
MOST_ROWS = 50  # of groups on the page; metrics.json has all


def write_score_page(
    found: Assessment,
    directory: str | Path,
    *,
    title: str,
    classes: Sequence[str] = (),
    source: str = "",
) -> Path:
    """Write ``metrics.json``, ``figures/*.svg`` and ``score.html`` of one set of predictions.

    The page has the verdict in words, the picture, the table and the details, in this order. The
    numbers are written before anything is drawn; a drawing that fails leaves an older page and its
    figures as they were.

    Args:
        found: What ``falconcal.assess`` returned.
        directory: The folder to write to.
        title: The heading of the page.
        classes: The names of the classes, to be listed on the page.
        source: What was read, in words, to be said on the page.

    Returns:
        The page, ``score.html`` in the folder.

    Raises:
        UserError: If ``found`` is something else, the folder cannot be written to, or a figure
            cannot be drawn.

    Example:
        >>> from falconcal.report import write_score_page
        >>> write_score_page("mine.csv", "scored", title="mine")
        Traceback (most recent call last):
        falconcal.errors.UserError: expected what falconcal.assess found, got the text 'mine.csv'.
    """
    if not isinstance(found, Assessment):
        raise UserError(f"expected what falconcal.assess found, got {described(found)}.")
    figures = score_figures(found)
    return write_numbers_and_page(
        found.to_json(), figures, lambda: _page(found, figures, title, classes, source), directory
    )


def write_numbers_and_page(
    numbers: str, figures: list[Figure], page: Callable[[], str], directory: str | Path
) -> Path:
    """Write ``metrics.json``, then the figures and ``score.html``, all of these or none."""
    directory = as_path(directory)
    _write({"metrics.json": numbers.encode()}, directory)
    try:
        files = {f"figures/{name}": content for name, content in drawn(figures).items()}
        files["score.html"] = page().encode()
    except DrawingError as error:
        raise not_drawn(error, directory, "score.html", "metrics.json") from None
    _write(files, directory)
    return directory / "score.html"


def _page(
    found: Assessment, figures: list[Figure], title: str, classes: Sequence[str], source: str
) -> str:
    return render_template(
        "score.html.jinja",
        found=found,
        verdict=found.sentences,
        source=readable(source),
        title=readable(title),
        classes=[readable(name) for name in classes[:MOST_CLASSES]],
        pictures=figures[:2],
        risk=figures[2:3],
        group_figures=figures[3:],
        bins=bins_words(found),
        metrics=HtmlTable(["Metric", "Value", "95 % interval"], _with_arrows(metric_rows(found))),
        notes=interval_notes(found),
        meanings={name: METRICS[name].summary for name in found.metrics},
        bins_table=_bins_table(found),
        groups=HtmlTable(
            ["Group", "Examples", found.group_metric, "95 % interval"], group_rows(found, MOST_ROWS)
        ),
        version=falconcal.__version__,
    )


def _write(files: dict[str, bytes], directory: Path) -> None:
    try:
        for name, content in files.items():
            write_bytes(directory / name, content)
    except OSError as error:
        raise _unwritable(directory, error.strerror or str(error)) from None


def check_folder(directory: Path) -> None:
    """Refuse an output folder that cannot be written to, before anything is measured."""
    if (reason := obstacle(directory)) is not None:
        raise _unwritable(directory, reason)


def metric_rows(found: Assessment) -> list[list[str]]:
    """Return name, value and interval of every figure, as text."""
    rows = [[name, *value_words(measured)] for name, measured in found.metrics.items()]
    parts = found.brier_parts
    names = ("reliability", "resolution", "uncertainty", "within_bins")
    for name in names if parts is not None else ():
        words = f"brier, {name.replace('_', ' ')}"
        rows.append([words, f"{getattr(parts, name):.4f}", NO_INTERVAL])
    for coverage, share in found.accuracy_at_coverage.items():
        rows.append([f"accuracy at coverage {coverage}", f"{share:.4f}", NO_INTERVAL])
    return rows


def _with_arrows(rows: list[list[str]]) -> list[list[str | Cell]]:
    """Return the rows with an arrow where higher or lower values of a metric are better."""
    better = {name: metric.better for name, metric in METRICS.items()}
    return [[name, Cell(value, better=better.get(name)), *more] for name, value, *more in rows]


def group_rows(found: Assessment, most: int) -> list[list[str]]:
    """Return name, examples, value and interval of the worst groups, as text."""
    rows = []
    for group in found.groups[:most]:
        bounds = group.interval
        words = value_words(MetricValue(bounds.value, bounds.low, bounds.high))
        rows.append([readable(group.name), f"{group.examples:,}", *words])
    return rows


def interval_notes(found: Assessment) -> list[str]:
    """Return why figures may have no interval."""
    notes = [
        "Intervals resample the examples; a figure with - has none. Calibration errors are biased "
        "upwards: their interval says where the true error lies, and the value may lie above it."
    ]
    missing = [name for name in METRICS if name not in found.metrics]
    if missing:
        notes.append(f"Without the probabilities of all classes there is no {', '.join(missing)}.")
    if found.bins != BINS:
        notes.append(f"Intervals of binned errors are for {BINS} bins only.")
    if found.examples * found.classes > MOST_CLASSWISE:
        notes.append(
            f"Above {MOST_CLASSWISE:,} probabilities class-wise ECE has no interval: its resamples "
            "would take minutes."
        )
    return notes


def _unwritable(directory: Path, reason: str) -> UserError:
    return UserError(
        f"cannot write to the output folder {directory}: {reason}. Choose another one with --out."
    )


def value_words(measured: MetricValue) -> list[str]:
    if measured.low is None or measured.high is None:
        return [f"{measured.value:.4f}", NO_INTERVAL]
    return [f"{measured.value:.4f}", f"{measured.low:.4f} to {measured.high:.4f}"]


def _bins_table(found: Assessment) -> HtmlTable:
    rows = [
        [
            f"{row['from']:.4g} to {row['to']:.4g}",
            f"{row['counts']:,}",
            f"{row['confidence']:.4f}",
            f"{row['accuracy']:.4f}",
            f"{row['low']:.4f} to {row['high']:.4f}",
        ]
        for row in reliability_table(found).to_dicts()
    ]
    return HtmlTable(
        ["Confidence", "Examples", "Mean confidence", "Accuracy", "95 % interval"], rows
    )
