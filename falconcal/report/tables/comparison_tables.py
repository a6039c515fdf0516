"""Tables of the evidence: intervals of figures, pairs of methods, the paper's tests."""

from collections.abc import Iterable
from dataclasses import dataclass

import polars

from falconcal.report.outcomes import FEWEST_SEEDS, outcome
from falconcal.report.study_evidence import (
    BEYOND_CHANCE,
    COMPARED,
    EvidenceRow,
    StudyEvidence,
    least_chance,
)
from falconcal.report.tables.headline_columns import HEADLINE, NOT_KNOWN, Column

HEADINGS = {column.name: column.heading for column in HEADLINE}
DIFFERENCES_NOTE = (
    "The first less the second, both on the same examples, with its 95 % interval; the share is "
    "the difference over the second's figure. An ECE is biased upwards: the interval says where "
    "the difference of the true errors lies, and the difference seen may lie outside. p is the "
    "two-sided p-value of the paired bootstrap, p (Holm) the same corrected for the number of "
    f"pairs. A verdict needs p (Holm) below {BEYOND_CHANCE} and at least {FEWEST_SEEDS} "
    "seeds of both methods, and follows the side of the interval. "
    'A p-value with "at most" is the smallest that the resamples can show: the true one may be far '
    "smaller, and the interval says how strong the evidence is."
)
AT_MOST = "at most "  # of the smallest p-value that the resamples can show


@dataclass(frozen=True)
class ComparisonTable:
    """A table of text under its own heading."""

    title: str
    note: str
    heading: list[str]
    rows: list[list[str]]


def intervals_note(evidence: StudyEvidence) -> str:
    """Say what an interval is over, and what it leaves out."""
    return (
        f"95 % intervals from {evidence.resamples:,} bootstrap resamples of the test examples, "
        "each drawn with all its levels and shifts, alike for every method and seed. They say how "
        "far the mean over seeds may move with other examples, for the same trained models."
    )


def tests_note(evidence: StudyEvidence) -> str:
    """Say what the tests compare, and how far to trust them."""
    return (
        f"Wilcoxon's tests, {evidence.reference} against every other method. Where there are "
        "several seeds, the value of each example is its mean over seeds. The effect runs from -1 "
        "to 1 (rank-biserial correlation for signed ranks, Cliff's delta for rank sums) and is "
        "below 0 where "
        f"{evidence.reference} has the smaller values. p (Holm) is corrected for the number of "
        "methods. As in the paper, the levels and shifts of one image count as values of their "
        "own: a test over several of them finds even a small difference beyond chance, so read the "
        "effect first."
    )


def interval_cells(
    evidence: StudyEvidence, columns: Iterable[Column]
) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table of intervals, one row per method."""
    bounds, shown = interval_texts(evidence), [column for column in columns if _has(column)]
    found = evidence.table.filter(kind="interval")["first"].unique(maintain_order=True)
    rows = [[first, *(bounds[first, column.name] for column in shown)] for first in found]
    return ["Method", *(column.heading for column in shown)], rows


def interval_texts(evidence: StudyEvidence) -> dict[tuple[str, str], str]:
    """Return the bounds of every headline figure as text, by method and figure."""
    rows = evidence.table.filter(polars.col("shift").is_null(), kind="interval").to_dicts()
    return {(row["first"], row["figure"]): _bounds(row) for row in rows}


def difference_tables(evidence: StudyEvidence) -> list[ComparisonTable]:
    """Return a table of all pairs of methods for each figure that is compared."""
    heading = ["Pair", "Difference", "95 % interval", "Share", "p", "p (Holm)", "Verdict"]
    rows = evidence.table.filter(kind="difference").to_dicts()
    return [
        ComparisonTable(
            HEADINGS[figure],
            "",
            heading,
            [_difference_row(row, evidence.resamples) for row in rows if row["figure"] == figure],
        )
        for figure in COMPARED
        if rows
    ]


def test_tables(evidence: StudyEvidence) -> list[ComparisonTable]:
    """Return a table of all methods for each test of the paper."""
    heading = ["Method", f"Median of {evidence.reference}", "Median of the method"]
    heading += ["Effect", "p", "p (Holm)", "Values"]
    rows = evidence.table.filter(kind="test").to_dicts()
    return [
        ComparisonTable(
            test.title,
            test.words,
            heading,
            [_test_row(row) for row in rows if row["figure"] == test.name],
        )
        for test in evidence.tests
    ]


def verdict_on(row: EvidenceRow) -> str:
    """Name the better of two methods, if the difference is beyond chance."""
    found = outcome(row)
    named = {"better": row["first"], "worse": row["second"]}
    return f"{named[found]} better" if found in named else found


def chance(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def corrected_chance(row: EvidenceRow, resamples: int) -> str:
    """Return the p-value of a difference after Holm, marked where the resamples show no smaller."""
    floor = least_chance(resamples) * (1 + 1e-9)
    return (AT_MOST if float(row["p"] or 0) <= floor else "") + chance(float(row["p_holm"] or 0))


def _has(column: Column) -> bool:
    return column.name != "training_seconds"  # a time is measured, not estimated from examples


def _bounds(row: EvidenceRow, style: str = ".3f") -> str:
    return f"{row['low']:{style}} to {row['high']:{style}}"


def _difference_row(row: EvidenceRow, resamples: int) -> list[str]:
    share = NOT_KNOWN if row["effect"] is None else f"{row['effect']:+.0%}"
    return [
        f"{row['first']} less {row['second']}",
        f"{row['value']:+.3f}",
        _bounds(row, "+.3f"),
        share,
        chance(float(row["p"] or 0)),
        corrected_chance(row, resamples),
        verdict_on(row),
    ]


def _test_row(row: EvidenceRow) -> list[str]:
    return [
        str(row["second"]),
        f"{row['first_value']:.3f}",
        f"{row['second_value']:.3f}",
        f"{row['effect']:+.2f}",
        *(chance(float(row[name] or 0)) for name in ("p", "p_holm")),
        f"{row['examples']:,}",
    ]
