"""What the command prints: text as it is, and tables."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from falconcal.cli.narrow_tables import TableLayout, print_fitting
from falconcal.errors import UserError, readable
from falconcal.io.output_folder import FAILURES_FOLDER, RunKey

if TYPE_CHECKING:
    from falconcal.cli.catalogue_tables import Setting
    from falconcal.evaluation.assessment import Assessment
    from falconcal.evaluation.side_by_side import SideBySide
    from falconcal.inference.inputs import PredictionCounts
    from falconcal.report.results import Results
    from falconcal.studies.tuning.search import Search

MAX_SHOWN_GROUPS = 5
MAX_NAMED_IMAGES = 20

output = Console()
errors = Console(stderr=True)


def print_text(words: str, console: Console = output, style: str | None = None) -> None:
    """Print text as it is, without markup or line breaks of our own.

    Control characters, which text from a file may hold, are made visible.
    """
    lines = "\n".join(readable(line) for line in words.split("\n"))
    console.print(lines, style=style, highlight=False, markup=False, soft_wrap=True)


def print_words(words: str, style: str | None = None) -> None:
    """Print sentences for people: lines break between words, never in a name."""
    output.print(Text(readable(words)), style=style)


def print_json(content: Any) -> None:
    """Print data for programs, nothing else, on standard output."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def show_outcome(outcome: "PredictionCounts", target: Path, threshold: float | None) -> None:
    words = f"{outcome.examples:,} examples"
    if threshold is not None:
        words += f", {outcome.rejected:,} rejected, confidence below {threshold:.6g}"
    print_text(f"{words}. Predictions: {target}")
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
    """Print which runs failed and why, and how to try again."""
    rows = [[str(run), reason] for run, reason in failed.items()]
    errors.print(table("Runs that failed", ["Run", "Reason"], rows, right=False))
    print_text(
        f"{len(failed)} run{'s' * (len(failed) != 1)} failed; finished runs are kept. "
        f"Details are in {directory / FAILURES_FOLDER}. To try again: {command}",
        errors,
    )


def show_list(kind: str, entries: Mapping[str, str]) -> None:
    output.print(kind, style="bold", highlight=False)
    width = max(len(name) for name in entries)
    for name, line in entries.items():
        print_text(f"  {name:<{width}}  {line}")


def show_settings(methods: "Mapping[str, Iterable[Setting]]") -> None:
    """Print each method with its settings, one per line and its description below."""
    for title, settings in methods.items():
        print_text(title, style="bold")
        for name, kind, default, description in settings:
            print_text(f"  {name}: {kind}, " + (f"default {default}" if default else "required"))
            if description:
                print_text(f"      {' '.join(description.split())}")


def show_summary(results: "Results") -> None:
    """Print the summary of one or several output folders, one row per method."""
    print_fitting(output, "Summary", summary_layouts(results))
    show_unseen(results)
    for note in results.notes:
        print_text(note)


def show_unseen(results: "Results") -> None:
    """Print what methods do under the shifts that none of them was fitted on anything like."""
    from falconcal.report.tables import kin_tables

    heading, rows = kin_tables.kin_cells(results)
    if rows and kin_tables.unseen_shifts(results):
        note = f"{kin_tables.UNSEEN_NOTE} {kin_tables.plain_of(results)}."
        print_fitting(output, kin_tables.KIN_TITLE, [TableLayout(heading, rows, note)])
    elif rows:
        print_words(kin_tables.NOTHING_UNSEEN, style="dim")


def summary_layouts(results: "Results") -> Iterator[TableLayout]:
    """Yield the headline table as a whole, without deviations, and with ever fewer figures."""
    from falconcal.report import headline
    from falconcal.report.tables.headline_columns import HEADLINE

    yield TableLayout(*headline(results))
    several = len(results.runs) > len(results.series)
    deviations = ["deviations between seeds"] if several else []
    for kept in range(len(HEADLINE), 0, -1):
        missing = deviations + [column.heading for column in HEADLINE[kept:]]
        note = f"The terminal is too narrow for {', '.join(missing)}: see summary.md."
        cells = headline(results, deviations=False, figures=kept)
        yield TableLayout(*cells, note if missing else "")


def show_score(found: "Assessment") -> None:
    from falconcal.report.charts.score_charts import bins_words
    from falconcal.report.pages.score_page import group_rows, interval_notes, metric_rows

    print_words(" ".join(found.sentences), style="bold")
    title = f"{found.examples:,} examples, {found.classes} classes, {bins_words(found)}"
    output.print(table(title, ["Metric", "Value", "95 % interval"], metric_rows(found)))
    for note in interval_notes(found):
        output.print(note, highlight=False, style="dim")
    if found.groups:
        title = f"Worst of {len(found.groups)} groups by {found.group_metric}"
        heading = ["Group", "Examples", found.group_metric, "95 % interval"]
        output.print(table(title, heading, group_rows(found, MAX_SHOWN_GROUPS)))


def show_side_by_side(both: "SideBySide") -> None:
    """Print the verdict of each file, all metrics, and the differences from the first file."""
    from falconcal.cli.side_by_side_layouts import difference_layouts, metric_layouts
    from falconcal.report.pages.score_page import interval_notes

    for name, found in both.assessments.items():
        print_words(f"{name}: {' '.join(found.sentences)}", style="bold")
    print_fitting(output, "Metrics", metric_layouts(both))
    print_text(interval_notes(found)[0], style="dim")
    title = f"Differences from {readable(both.reference)}, in pairs"
    print_fitting(output, title, difference_layouts(both))


def table(title: str, heading: list[str], rows: list[list[str]], right: bool = True) -> Table:
    """Return a table for the terminal; its text is shown without markup."""
    shown = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, text in enumerate(heading):
        longest = max(len(word) for word in text.split())  # break headings only between words
        side: Literal["left", "right"] = "right" if number and right else "left"
        # names that are cut off could look the same
        shown.add_column(text, justify=side, min_width=longest, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(readable(cell)) for cell in row))
    return shown


def announce_search(search: "Search") -> None:
    """Print where the search differs from what the command asked for."""
    if search.target.name != search.method:
        output.print(f"{search.method} is tuned through {search.target.name}.", highlight=False)
    planned = len(list(search.plan()))
    if planned < search.trials:
        output.print(f"The search space has only {planned} points: one trial for each.")


def show_trial(row: dict[str, Any]) -> None:
    """Print one line about a trial that ended."""
    words = f"{row['method']}, trial {row['trial']}: {row['state']}"
    if "criterion" in row:
        words += f", criterion {row['criterion']:.4f}, accuracy {row['accuracy']:.4f}"
    if "reason" in row:
        words += f", {row['reason']}"
    if "seconds" in row:
        words += f", {row['seconds']:.0f} s"
    print_text(words)


def show_family_agreement(agreement: Mapping[str, float]) -> None:
    """Print how each family of the criterion ranks the trials beside the others; warn of some."""
    if not agreement:
        return
    words = ", ".join(f"{name} {correlation:+.2f}" for name, correlation in agreement.items())
    print_text(f"Rank correlation of each family with the mean of the others: {words}.")
    for name in (name for name, correlation in agreement.items() if correlation < 0):
        print_text(
            f"Warning: {name} ranks the trials against the other families; the criterion means "
            "little there. Leave it out with selection_shifts, or do more trials."
        )


def show_trials(directory: Path, rows: list[dict[str, Any]]) -> None:
    from falconcal.report.charts.trial_charts import (
        HEADING,
        best_cells,
        family_agreement,
        rank_correlations,
        write_history,
    )

    output.print(table("Best trials, by validation data", HEADING, best_cells(rows)))
    show_family_agreement(family_agreement(rows))
    for name, (correlation, trials) in rank_correlations(rows).items():
        print_text(
            f"Rank correlation of criterion and mean micro ECE on test data, {name}: "
            f"{correlation:.2f} over {trials} trials; nothing was chosen by it."
        )
    print_text(f"Best: {directory / 'best.toml'}")
    print_text(f"History: {write_history(directory)}")  # last, because drawing may fail
