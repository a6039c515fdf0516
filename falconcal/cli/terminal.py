"""What the command prints on a terminal: words as they are, and tables of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from falconcal.errors import UserError, readable
from falconcal.io.output_folder import FAILURES_FOLDER, RunKey

if TYPE_CHECKING:
    from falconcal.evaluation.assessment import Assessment
    from falconcal.inference.inputs import PredictionCounts
    from falconcal.report.results import Results
    from falconcal.studies.tuning.search import Search

WORST = 5  # groups shown on a terminal
MAX_NAMED_IMAGES = 20  # images named on a terminal

output = Console()
errors = Console(stderr=True)


def print_text(words: str, console: Console = output, style: str | None = None) -> None:
    """Print words as they are, whatever brackets they hold; long ones are not cut.

    What a file brings along cannot steer the terminal.
    """
    lines = "\n".join(readable(line) for line in words.split("\n"))
    console.print(lines, style=style, highlight=False, markup=False, soft_wrap=True)


def show_outcome(outcome: "PredictionCounts", target: Path, threshold: float | None) -> None:
    words = f"{outcome.examples:,} examples"
    if threshold is not None:
        words += f", {outcome.rejected:,} rejected, confidence below {threshold:.6g}"
    print_text(f"{words}. Answers: {target}")
    if outcome.damaged:
        named = [
            f"  {name}: {why}" for name, why in list(outcome.damaged.items())[:MAX_NAMED_IMAGES]
        ]
        more = len(outcome.damaged) - MAX_NAMED_IMAGES
        raise UserError(
            f"{len(outcome.damaged):,} images could not be read; their rows are empty:\n"
            + "\n".join([*named, *([f"  and {more:,} more"] if more > 0 else [])])
        )


def show_failures(directory: Path, failed: Mapping[RunKey, str], command: str) -> None:
    """Print which runs failed and why, and how to go on."""
    rows = [[str(run), reason] for run, reason in failed.items()]
    errors.print(table("Runs that failed", ["Run", "Reason"], rows, right=False))
    print_text(
        f"{len(failed)} failed; what is complete stays. Where each failed stands in "
        f"{directory / FAILURES_FOLDER}. To try again: {command}",
        errors,
    )


def show_list(kind: str, entries: Mapping[str, str]) -> None:
    output.print(kind, style="bold", highlight=False)
    width = max(len(name) for name in entries)
    for name, line in entries.items():
        print_text(f"  {name:<{width}}  {line}")


def show_summary(results: "Results") -> None:
    """Print the summary of an output folder, or of several, a row a method."""
    from falconcal.report import headline

    output.print(table("Summary", *headline(results)))
    for note in results.notes:
        print_text(note)


def show_score(found: "Assessment") -> None:
    from falconcal.report.charts.score_charts import bins_words
    from falconcal.report.pages.score_page import group_rows, interval_notes, metric_rows

    title = f"{found.examples:,} examples, {found.classes} classes, {bins_words(found)}"
    output.print(table(title, ["Metric", "Value", "95 % interval"], metric_rows(found)))
    for note in interval_notes(found):
        output.print(note, highlight=False, style="dim")
    if found.groups:
        title = f"Worst of {len(found.groups)} groups by {found.group_metric}"
        heading = ["Group", "Examples", found.group_metric, "95 % interval"]
        output.print(table(title, heading, group_rows(found, WORST)))


def table(title: str, heading: list[str], rows: list[list[str]], right: bool = True) -> Table:
    """Return text in rows for a terminal; it is shown as it is, whatever brackets it holds."""
    shown = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, text in enumerate(heading):
        longest = max(len(word) for word in text.split())  # headings break between words alone
        side: Literal["left", "right"] = "right" if number and right else "left"
        # names that are cut off could be told apart no longer
        shown.add_column(text, justify=side, min_width=longest, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(readable(cell)) for cell in row))
    return shown


def announce_search(search: "Search") -> None:
    """Say what is searched, where that is not what the words of the command say."""
    if search.target.name != search.method:
        output.print(f"{search.method} is tuned through {search.target.name}.", highlight=False)
    planned = len(list(search.plan()))
    if planned < search.trials:
        output.print(f"The search has {planned} points, so there are as many trials.")


def show_trial(row: dict[str, Any]) -> None:
    """Print a trial that ended in one line."""
    words = f"{row['method']}, trial {row['trial']}: {row['state']}"
    if "criterion" in row:
        words += f", criterion {row['criterion']:.4f}, accuracy {row['accuracy']:.4f}"
    if "reason" in row:
        words += f", {row['reason']}"
    if "seconds" in row:
        words += f", {row['seconds']:.0f} s"
    print_text(words)


def show_trials(directory: Path, rows: list[dict[str, Any]]) -> None:
    from falconcal.report.charts.trial_charts import (
        HEADING,
        best_cells,
        rank_correlations,
        write_history,
    )

    output.print(table("Best trials, by validation data", HEADING, best_cells(rows)))
    for name, (correlation, trials) in rank_correlations(rows).items():
        print_text(
            f"Rank correlation of criterion and mean micro ECE on test data, {name}: "
            f"{correlation:.2f} over {trials} trials; nothing was chosen by it."
        )
    print_text(f"Best: {directory / 'best.toml'}")
    print_text(
        f"History: {write_history(directory)}"
    )  # drawn last: what fails there takes nothing along
