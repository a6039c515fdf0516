"""The paper's own tests: which scores they compare, at which levels, and of which methods."""

from collections.abc import Callable
from dataclasses import dataclass

import polars
from torch import Tensor

from falconcal.evaluation.under_shift import CLEAN, OUTLIER_LEVEL
from falconcal.evidence import RankTest, rank_sum, signed_rank
from falconcal.report.results import Results

NEAR_RANDOM = 0.2  # accuracy below which the paper calls a level truly out of distribution
STRONG_LEVELS = range(6, 10)
ShiftLevel = tuple[str, int]


@dataclass(frozen=True)
class PaperTest:
    """A test of the paper: which score, of which levels of which shifts, compared how."""

    name: str
    title: str
    words: str
    column: str
    levels: tuple[ShiftLevel, ...]
    compare: Callable[[Tensor, Tensor], RankTest]


def reference_of(results: Results) -> str:
    """Return the series that the paper's tests compare with the others; empty if it is not here."""
    return results.series_of(results.roles.reference) or ""


def paper_tests(results: Results) -> tuple[PaperTest, ...]:
    """Return the tests of the paper for which the study has data; a new one is a new entry.

    A study without the reference method, or with it alone, has none of them.
    """
    if not reference_of(results) or len(results.series) < 2:
        return ()
    lost = near_chance_levels(results)
    shifts = ", ".join(shift for shift, _ in lost)
    strong = tuple(at_level for at_level in _shift_levels(results) if at_level[1] in STRONG_LEVELS)
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
    return tuple(test for test in tests if test.levels)


def near_chance_levels(results: Results) -> tuple[ShiftLevel, ...]:
    """Return the last levels at which the mean accuracy of all runs is near random."""
    last = dict(_shift_levels(results))  # the highest of each shift stands last
    accuracy = results.rows.filter(metric="accuracy").group_by("shift", "level")
    means = {
        (shift, level): mean
        for shift, level, mean in accuracy.agg(polars.col("value").mean()).rows()
    }
    return tuple(at_level for at_level in last.items() if means.get(at_level, 1.0) < NEAR_RANDOM)


def _outlier_test(name: str) -> PaperTest:
    """Return the paper's test on Fashion-MNIST, for whatever outliers the study has."""
    return PaperTest(
        f"signed_rank_{name}_confidence",
        f"Signed-rank test of confidence, outliers {name}",
        f"The outliers {name}, examples of no class that the models know.",
        "confidence",
        ((name, OUTLIER_LEVEL),),
        signed_rank,
    )


def _shift_levels(results: Results) -> list[ShiftLevel]:
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
