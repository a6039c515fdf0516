"""The evidence of a study: intervals, every method against every other, and the paper's own tests.

All methods, seeds and shifts are resampled alike, so differences are paired; figures are means over
seeds, and intervals are over examples, with the trained models as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy
import polars
from torch import Tensor

from falconcal.evidence import Difference, Interval, holm
from falconcal.evidence.differences import difference_of, interval_of
from falconcal.report.paper_tests import PaperTest, paper_tests, reference_of
from falconcal.report.results import Results
from falconcal.report.series_estimates import SeriesEstimates, SharedResamples, estimate_series

COMPARED = ("accuracy", "clean_ece", "mean_micro_ece", "mean_macro_ece")
BEYOND_CHANCE = 0.05
# corrected by Holm, the smallest p-value of a bootstrap is twice the pairs over the resamples: with
# 50 for every pair it is 0.04, below what counts as beyond chance
LEAST_RESAMPLES, RESAMPLES_PER_PAIR = 1000, 50
EVIDENCE_SCHEMA = {
    "kind": polars.String,  # interval, difference or test
    "figure": polars.String,
    "shift": polars.String,  # empty for a figure of the whole study
    "first": polars.String,
    "second": polars.String,  # empty for an interval
    "value": polars.Float64,  # the figure, the difference, or the difference of medians
    "low": polars.Float64,
    "high": polars.Float64,
    "p": polars.Float64,
    "p_holm": polars.Float64,
    "effect": polars.Float64,  # share of the second's figure; rank-biserial or Cliff's delta
    "first_value": polars.Float64,  # figures, or medians, of the two
    "second_value": polars.Float64,
    "examples": polars.Int64,  # resampled, or values of a test
    "seeds": polars.Int64,  # the fewer of the two
}
EvidenceRow = dict[str, str | float | int | None]


@dataclass(frozen=True, eq=False)
class StudyEvidence:
    """All intervals, differences and tests of a study, and what they were made of."""

    table: polars.DataFrame
    tests: tuple[PaperTest, ...]
    reference: str
    resamples: int


def gather_evidence(results: Results) -> StudyEvidence:
    """Return the evidence of a study from its stored scores."""
    tests = paper_tests(results)
    resamples = resamples_for(len(results.series))
    sample = SharedResamples(results.runs[0], resamples)
    measured = {
        series: estimate_series(results, series, tests, sample) for series in results.series
    }
    reference = reference_of(results)
    examples = sample.counts.shape[1]
    rows = [
        *_interval_rows(measured, examples),
        *(row for figure in COMPARED for row in _difference_rows(measured, figure, examples)),
        *(row for test in tests for row in _test_rows(measured, test, reference)),
    ]
    return StudyEvidence(polars.DataFrame(rows, EVIDENCE_SCHEMA), tests, reference, resamples)


def resamples_for(methods: int) -> int:
    """Return how many resamples let a difference stand out after Holm's correction."""
    return max(LEAST_RESAMPLES, RESAMPLES_PER_PAIR * methods * (methods - 1) // 2)


def least_chance(resamples: int) -> float:
    """Return the smallest p-value that so many resamples can show."""
    return 2 / (resamples + 1)


def _interval_rows(measured: dict[str, SeriesEstimates], examples: int) -> Iterator[EvidenceRow]:
    for series, one in measured.items():
        for (name, shift), figure in one.figures.items():
            row: EvidenceRow = {"kind": "interval", "figure": name, "shift": shift, "first": series}
            yield row | _bounds(interval_of(figure)) | {"examples": examples, "seeds": one.seeds}


def _difference_rows(
    measured: dict[str, SeriesEstimates], figure: str, examples: int
) -> list[EvidenceRow]:
    """Return the difference of every pair of methods, corrected for their number."""
    rows: list[EvidenceRow] = []
    for (first, one), (second, other) in combinations(measured.items(), 2):
        figures = one.figures[figure, None], other.figures[figure, None]
        found = difference_of(*figures)
        row = _pair("difference", figure, first, second, measured) | _bounds(found)
        row |= {"p": found.p_value, "effect": found.effect, "examples": examples}
        rows.append(row | {"first_value": figures[0].value, "second_value": figures[1].value})
    return _corrected(rows)


def _test_rows(
    measured: dict[str, SeriesEstimates], test: PaperTest, reference: str
) -> list[EvidenceRow]:
    """Return the test of the reference against every other method, corrected for their number."""
    own = measured[reference].values[test.name]
    rows: list[EvidenceRow] = []
    for series in (name for name in measured if name != reference):
        other = measured[series].values[test.name]
        found = test.compare(own, other)
        row = _pair("test", test.name, reference, series, measured)
        row |= {"value": found.median_difference, "p": found.p_value, "effect": found.effect}
        row |= {"first_value": _median(own), "second_value": _median(other)}
        rows.append(row | {"examples": found.examples})
    return _corrected(rows)


def _pair(
    kind: str, figure: str, first: str, second: str, measured: dict[str, SeriesEstimates]
) -> EvidenceRow:
    seeds = min(measured[first].seeds, measured[second].seeds)
    return {"kind": kind, "figure": figure, "first": first, "second": second, "seeds": seeds}


def _bounds(found: Interval | Difference) -> EvidenceRow:
    return {"value": found.value, "low": found.low, "high": found.high}


def _median(values: Tensor) -> float:
    return float(numpy.median(values.numpy()))


def _corrected(rows: list[EvidenceRow]) -> list[EvidenceRow]:
    corrected = holm([float(row["p"] or 0) for row in rows])
    return [{**row, "p_holm": p} for row, p in zip(rows, corrected, strict=True)]
