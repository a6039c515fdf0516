"""What a run ends with: the shift that its study shows, in figures and in sentences.

The study says which shift that is (``[report.showcase]``); everything else is read from the rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars

from falconcal.cli import terminal
from falconcal.cli.narrow_tables import TableLayout, print_fitting
from falconcal.evaluation.confidence_gaps import beside_plain, confidence_gaps, nearer
from falconcal.io.output_folder import DEFAULT_VARIANT
from falconcal.io.report_roles import Showcase

if TYPE_CHECKING:
    from falconcal.report.results import Results

TITLE = "Is it as sure as it is right?"
SLIGHT = 0.01  # farther from the accuracy than plain by less is not worth a sentence


@dataclass(frozen=True)
class Shown:
    """How often a method is right at each shown level, and how sure it says it is."""

    method: str
    right: list[float]
    says: list[float]


def show_showcase(results: "Results") -> None:
    """Print the study's showcase, if it has one and the runs that it shows are there."""
    showcase, rows = results.roles.shown, tested_rows(results)
    if showcase is None:
        return
    methods = (results.roles.plain, showcase.method)
    found = [shown_levels(rows, showcase, method) for method in methods]
    if any(len(one.says) < len(showcase.levels) for one in found):
        return  # a smoke run, or one of the methods alone
    print_fitting(terminal.output, TITLE, [showcase_layout(showcase, found)])
    for sentence in showcase_verdict(showcase, found, rows):
        terminal.print_words(sentence)


def tested_rows(results: "Results") -> polars.DataFrame:
    """Return the rows of the plain variant under the tested shifts."""
    tested = polars.col("shift").is_in(results.tested_shifts)
    return results.rows.filter(tested, polars.col("variant") == DEFAULT_VARIANT)


def shown_levels(rows: polars.DataFrame, showcase: Showcase, method: str) -> Shown:
    """Return accuracy and confidence of a method at the shown levels, means over shifts and seeds.

    Levels that the rows lack are left out.
    """
    mine = rows.filter(polars.col("shift").is_in(showcase.shifts), method=method)
    means = mine.group_by("level", "metric").agg(polars.col("value").mean())
    at = {(level, metric): value for level, metric, value in means.iter_rows()}
    right, says = (
        [at[level, metric] for level in showcase.levels if (level, metric) in at]
        for metric in ("accuracy", "confidence")
    )
    return Shown(method, right, says)


def showcase_layout(showcase: Showcase, found: list[Shown]) -> TableLayout:
    """Return the table: two rows per method, one column per level."""
    rows = []
    for one in found:
        rows.append([f"{one.method} is right", *map(percent, one.right)])
        rows.append([f"{one.method} says", *map(percent, one.says)])
    return TableLayout([showcase.words, *showcase.labels], rows)


def showcase_verdict(showcase: Showcase, found: list[Shown], rows: polars.DataFrame) -> list[str]:
    """Return in sentences what the table shows, how often it holds, and where it does not."""
    plain, ours = found
    cases = nearer(rows, ours.method, plain.method)
    both = "; ".join(
        f"{one.method} says {percent(one.says[-1])} and is right in {percent(one.right[-1])}"
        for one in found
    )
    return [
        f"{showcase.words} {showcase.labels[-1]}, {both}.",
        f"Over all tested shifts and levels {ours.method} is nearer to its accuracy than "
        f"{plain.method} in {sum(cases)} of {len(cases)} cases.",
        *what_does_not_work(rows, ours.method, plain.method),
    ]


def what_does_not_work(rows: polars.DataFrame, method: str, plain: str) -> list[str]:
    """Return sentences on where a method is farthest behind plain, and farthest off at all."""
    cases = mean_cases(rows, method, plain)
    by_lag = cases.sort(polars.col("gap") - polars.col("gap_plain"), descending=True)
    behind = by_lag.row(0, named=True)
    off = cases.sort("gap", descending=True).row(0, named=True)
    found = []
    if behind["gap"] - behind["gap_plain"] >= SLIGHT:
        found.append(f"What does not work: {case_words(behind, plain)}")
    if off["gap"] >= SLIGHT and off != behind:
        found.append(f"Where it is farthest from its accuracy: {case_words(off, plain)}")
    return found


def mean_cases(rows: polars.DataFrame, method: str, plain: str) -> polars.DataFrame:
    """Return one row per shift and level of a method, plain beside it, means over seeds."""
    gaps = beside_plain(confidence_gaps(rows), method, plain)
    return gaps.group_by("shift", "level", maintain_order=True).agg(polars.selectors.float().mean())


def case_words(case: dict[str, Any], plain: str) -> str:
    """Return one shift at one level in a sentence."""
    kind = "too timid" if case["confidence"] < case["accuracy"] else "too sure"
    return (
        f"under {case['shift']} at level {case['level']} it is {kind}. It says "
        f"{percent(case['confidence'])} and is right in {percent(case['accuracy'])}; {plain} says "
        f"{percent(case['confidence_plain'])} and is right in {percent(case['accuracy_plain'])}."
    )


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
