"""What is beyond chance: intervals, every method against every other, and the paper's own tests.

Everything comes from the stored scores, read one shift of one run at a time. All methods, seeds and
shifts are resampled alike, so differences are paired; figures are means over seeds, and intervals
are over examples, the trained models taken as they are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy
import polars
import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.evaluation import CLEAN, OUTSIDE, levels_of
from falconcal.evidence import Difference, Interval, RankTest, holm, rank_sum, signed_rank
from falconcal.evidence.differences import Figure, difference_of, interval_of
from falconcal.evidence.outside import outlier_set_draws
from falconcal.evidence.pooled import (
    Draws,
    drawn_counts,
    figure_of,
    level_draws,
    mean_of_draws,
    shift_draws,
)
from falconcal.predictions import Scores
from falconcal.report.results import Results, Run, open_scores, reading

COMPARED = ("accuracy", "clean_ece", "mean_micro_ece", "mean_macro_ece")
BEYOND_CHANCE = 0.05
# corrected by Holm, the smallest p-value of a bootstrap is twice the pairs over the resamples: with
# 50 for every pair it is 0.04, below what counts as beyond chance
LEAST_RESAMPLES, RESAMPLES_A_PAIR = 1000, 50
REFERENCE = "falcon"  # the method that the paper's tests compare with the others
NEAR_RANDOM = 0.2  # accuracy below which the paper calls a level truly out of distribution
STRONG_LEVELS = range(6, 10)
SCHEMA = {
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
Row = dict[str, str | float | int | None]
Rung = tuple[str, int]
Key = tuple[str, str | None]  # a figure, and the shift if it is of one alone


@dataclass(frozen=True)
class PaperTest:
    """A test of the paper: which score, of which levels of which shifts, compared how."""

    name: str
    title: str
    words: str
    column: str
    rungs: tuple[Rung, ...]
    compare: Callable[[Tensor, Tensor], RankTest]


@dataclass(frozen=True, eq=False)
class Evidence:
    """All intervals, differences and tests of a study, and what they were made of."""

    table: polars.DataFrame
    tests: tuple[PaperTest, ...]
    reference: str
    resamples: int


@dataclass(frozen=True, eq=False)
class Measured:
    """One series: its figures and the values that the tests compare, over seeds."""

    seeds: int
    figures: dict[Key, Figure]
    values: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Drawn:
    """One run: the draws of its figures and the values that the tests compare."""

    draws: dict[Key, Draws]
    values: dict[str, Tensor]


class Sample:
    """The resamples that all runs share: of the test examples, and of those a shift has itself."""

    def __init__(self, first: Run, resamples: int) -> None:
        self.first, self.resamples = first, resamples
        self.labels: dict[str, Tensor] = {}
        self.drawn: dict[str, numpy.ndarray] = {}
        self._take(CLEAN, _read(first, CLEAN)[0].label)

    @property
    def counts(self) -> numpy.ndarray:
        """How often each resample takes each test example."""
        return self.drawn[CLEAN]

    def others(self, run: Run, shift: str, labels: Tensor) -> numpy.ndarray | None:
        """Return the counts of a shift's own examples, nothing where they are the test's."""
        if torch.equal(labels, self.labels[CLEAN]):
            return None
        if shift not in self.labels:
            self._take(shift, labels)
        self.check(run, shift, labels)
        return self.drawn[shift]

    def check(self, run: Run, shift: str, labels: Tensor) -> None:
        if not torch.equal(labels, self.labels[shift]):
            raise UserError(
                f"expected the examples of {self.first.scores_file} in {run.scores_file}, got "
                f"other labels of {shift}: only runs on the same data can be compared. Run the "
                "study again."
            )

    def _take(self, shift: str, labels: Tensor) -> None:
        self.labels[shift] = labels
        self.drawn[shift] = drawn_counts(len(labels), self.resamples, seed=len(self.drawn))


def gather_evidence(results: Results) -> Evidence:
    """Return the evidence of a study from its stored scores."""
    tests = paper_tests(results)
    resamples = resamples_for(len(results.series))
    sample = Sample(results.runs[0], resamples)
    measured = {series: _measure(results, series, tests, sample) for series in results.series}
    reference = reference_of(results)
    examples = sample.counts.shape[1]
    rows = [
        *_interval_rows(measured, examples),
        *(row for figure in COMPARED for row in _difference_rows(measured, figure, examples)),
        *(row for test in tests for row in _test_rows(measured, test, reference)),
    ]
    return Evidence(polars.DataFrame(rows, SCHEMA), tests, reference, resamples)


def resamples_for(methods: int) -> int:
    """Return how many resamples let a difference stand out after Holm's correction."""
    return max(LEAST_RESAMPLES, RESAMPLES_A_PAIR * methods * (methods - 1) // 2)


def least_chance(resamples: int) -> float:
    """Return the smallest p-value that so many resamples can tell."""
    return 2 / (resamples + 1)


def reference_of(results: Results) -> str:
    """Return the series that the paper's tests compare with the others: FALCON, or the first."""
    falcons = [run.series for run in results.runs if run.key.method == REFERENCE]
    return falcons[0] if falcons else results.series[0]


def paper_tests(results: Results) -> tuple[PaperTest, ...]:
    """Return the tests of the paper for which the study has data; a new one is a new entry."""
    lost = lost_rungs(results)
    shifts = ", ".join(shift for shift, _ in lost)
    strong = tuple(rung for rung in _rungs(results) if rung[1] in STRONG_LEVELS)
    tests = (
        PaperTest(
            "signed_rank_clean_confidence",
            "Signed-rank test of confidence, clean",
            "The clean examples, in domain.",
            "confidence",
            ((CLEAN, 0),),
            signed_rank,
        ),
        PaperTest(
            "signed_rank_out_of_distribution_confidence",
            "Signed-rank test of confidence, truly out of distribution",
            f"The last level of shifts under which the mean accuracy of all runs is below "
            f"{NEAR_RANDOM} there: {shifts}.",
            "confidence",
            lost,
            signed_rank,
        ),
        *(_outlier_test(name) for name in results.outliers),
        PaperTest(
            "rank_sum_nll_levels_6_to_9",
            "Rank-sum test of NLL, levels 6 to 9",
            "Levels 6 to 9 of all tested shifts.",
            "nll",
            strong,
            rank_sum,
        ),
    )
    return tuple(test for test in tests if test.rungs and len(results.series) > 1)


def lost_rungs(results: Results) -> tuple[Rung, ...]:
    """Return the last levels at which the mean accuracy of all runs is near random."""
    last = dict(_rungs(results))  # the highest of each shift stands last
    accuracy = results.rows.filter(metric="accuracy").group_by("shift", "level")
    means = {
        (shift, level): mean
        for shift, level, mean in accuracy.agg(polars.col("value").mean()).rows()
    }
    return tuple(rung for rung in last.items() if means.get(rung, 1.0) < NEAR_RANDOM)


def _outlier_test(name: str) -> PaperTest:
    """Return the paper's test on Fashion-MNIST, for whatever outliers the study has."""
    return PaperTest(
        f"signed_rank_{name}_confidence",
        f"Signed-rank test of confidence, outliers {name}",
        f"The outliers {name}, examples of no class that the models know.",
        "confidence",
        ((name, OUTSIDE),),
        signed_rank,
    )


def _rungs(results: Results) -> list[Rung]:
    """Return the levels of the tested shifts, the clean ones left out."""
    rows = results.rows.filter(polars.col("level") > 0).select("shift", "level").unique()
    levels = set(rows.rows())
    highest = max((level for _, level in levels), default=0)
    return [
        (shift, level)
        for shift in results.tested_shifts
        for level in range(1, highest + 1)
        if (shift, level) in levels
    ]


def _measure(
    results: Results, series: str, tests: tuple[PaperTest, ...], sample: Sample
) -> Measured:
    runs = [
        _measure_run(results, run, tests, sample) for run in results.runs if run.series == series
    ]
    figures = {
        key: figure_of(mean_of_draws(run.draws[key] for run in runs)) for key in runs[0].draws
    }
    values = {
        test.name: torch.stack([run.values[test.name] for run in runs]).mean(0) for test in tests
    }
    return Measured(len(runs), figures, values)


def _measure_run(results: Results, run: Run, tests: tuple[PaperTest, ...], sample: Sample) -> Drawn:
    clean, counts = _read(run, CLEAN)[0], sample.counts
    sample.check(run, CLEAN, clean.label)
    pooled: dict[str, dict[str, Draws]] = {}
    values: dict[str, list[Tensor]] = defaultdict(list)
    _take(values, tests, CLEAN, {0: clean})
    outside: dict[Key, Draws] = {}
    for shift, levels in _shifts(results, run, tests):
        _take(values, tests, shift, levels)
        if shift in results.tested_shifts:
            others = sample.others(run, shift, next(iter(levels.values())).label)
            pooled[shift] = shift_draws([clean, *levels.values()], counts, others)
        if shift in results.outliers:
            drawn = outlier_set_draws(clean, levels[OUTSIDE], counts)
            outside |= {(figure, shift): draws for figure, draws in drawn.items()}
    joined = {name: torch.cat(parts) for name, parts in values.items()}
    return Drawn(_draws(clean, pooled, counts) | outside, joined)


def _shifts(
    results: Results, run: Run, tests: tuple[PaperTest, ...]
) -> Iterator[tuple[str, dict[int, Scores]]]:
    """Yield the shifts that figures or tests ask for, read when their turn comes."""
    asked = [shift for test in tests for shift, _ in test.rungs if shift != CLEAN]
    for shift in dict.fromkeys([*results.tested_shifts, *results.outliers, *asked]):
        yield shift, _read(run, shift)


def _take(
    values: dict[str, list[Tensor]],
    tests: tuple[PaperTest, ...],
    shift: str,
    levels: dict[int, Scores],
) -> None:
    """Add to the values of each test what it asks of a shift."""
    for test in tests:
        for level, scores in levels.items():
            if (shift, level) in test.rungs:
                values[test.name].append(getattr(scores, test.column).double())


def _draws(
    clean: Scores, pooled: dict[str, dict[str, Draws]], counts: numpy.ndarray
) -> dict[Key, Draws]:
    """Return the draws of the headline figures of a run, and of micro-averaged ECE by shift."""
    means = {
        "mean_micro_ece": "micro_ece",
        "mean_macro_ece": "macro_ece",
        "last_level_confidence": "last_level_confidence",
    }
    return {
        ("accuracy", None): level_draws(clean, "accuracy", counts),
        ("clean_ece", None): shift_draws([clean], counts)["micro_ece"],  # one level, so plain ECE
        **{
            (name, None): mean_of_draws(draws[figure] for draws in pooled.values())
            for name, figure in means.items()
        },
        **{("micro_ece", shift): draws["micro_ece"] for shift, draws in pooled.items()},
    }


def _interval_rows(measured: dict[str, Measured], examples: int) -> Iterator[Row]:
    for series, one in measured.items():
        for (name, shift), figure in one.figures.items():
            row: Row = {"kind": "interval", "figure": name, "shift": shift, "first": series}
            yield row | _bounds(interval_of(figure)) | {"examples": examples, "seeds": one.seeds}


def _difference_rows(measured: dict[str, Measured], figure: str, examples: int) -> list[Row]:
    """Return the difference of every pair of methods, corrected for their number."""
    rows: list[Row] = []
    for (first, one), (second, other) in combinations(measured.items(), 2):
        figures = one.figures[figure, None], other.figures[figure, None]
        found = difference_of(*figures)
        row = _pair("difference", figure, first, second, measured) | _bounds(found)
        row |= {"p": found.p_value, "effect": found.effect, "examples": examples}
        rows.append(row | {"first_value": figures[0].value, "second_value": figures[1].value})
    return _corrected(rows)


def _test_rows(measured: dict[str, Measured], test: PaperTest, reference: str) -> list[Row]:
    """Return the test of the reference against every other method, corrected for their number."""
    own = measured[reference].values[test.name]
    rows: list[Row] = []
    for series in (name for name in measured if name != reference):
        other = measured[series].values[test.name]
        found = test.compare(own, other)
        row = _pair("test", test.name, reference, series, measured)
        row |= {"value": found.median_difference, "p": found.p_value, "effect": found.effect}
        row |= {"first_value": _median(own), "second_value": _median(other)}
        rows.append(row | {"examples": found.examples})
    return _corrected(rows)


def _pair(kind: str, figure: str, first: str, second: str, measured: dict[str, Measured]) -> Row:
    seeds = min(measured[first].seeds, measured[second].seeds)
    return {"kind": kind, "figure": figure, "first": first, "second": second, "seeds": seeds}


def _bounds(found: Interval | Difference) -> Row:
    return {"value": found.value, "low": found.low, "high": found.high}


def _median(values: Tensor) -> float:
    return float(numpy.median(values.numpy()))


def _corrected(rows: list[Row]) -> list[Row]:
    corrected = holm([float(row["p"] or 0) for row in rows])
    return [{**row, "p_holm": p} for row, p in zip(rows, corrected, strict=True)]


def _read(run: Run, shift: str) -> dict[int, Scores]:
    """Return the scores of a shift's levels, examples in their order."""
    wanted = open_scores(run).filter(polars.col("shift") == shift).sort("level", "example")
    with reading(run.scores_file):
        table = wanted.collect(engine="streaming")
    if table.is_empty():
        raise UserError(
            f"expected scores of {shift} in {run.scores_file}, found none: run the study again."
        )
    return levels_of(table)
