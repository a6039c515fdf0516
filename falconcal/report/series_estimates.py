"""Figures of each series with their draws, from resamples that all runs of a study share.

The stored scores are read one shift of one run at a time.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import polars
import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.evaluation.score_rows import scores_by_level
from falconcal.evaluation.under_shift import CLEAN, OUTLIER_LEVEL
from falconcal.evidence.differences import Estimate
from falconcal.evidence.outlier_resampling import outlier_set_draws
from falconcal.evidence.pooled import (
    Draws,
    drawn_counts,
    figure_of,
    level_draws,
    mean_of_draws,
    shift_draws,
)
from falconcal.metrics.predictions import Scores
from falconcal.report.paper_tests import PaperTest
from falconcal.report.results import Results, StoredRun, explaining_read_errors, open_scores

FigureKey = tuple[str, str | None]  # a figure, and the shift if it is of one alone


@dataclass(frozen=True, eq=False)
class SeriesEstimates:
    """One series: its figures and the values that the tests compare, over seeds."""

    seeds: int
    figures: dict[FigureKey, Estimate]
    values: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class RunDraws:
    """One run: the draws of its figures and the values that the tests compare."""

    draws: dict[FigureKey, Draws]
    values: dict[str, Tensor]


class SharedResamples:
    """The resamples that all runs share: of the test examples, and of those a shift has itself."""

    def __init__(self, first: StoredRun, resamples: int) -> None:
        self.first, self.resamples = first, resamples
        self.labels: dict[str, Tensor] = {}
        self.drawn: dict[str, numpy.ndarray] = {}
        self._take(CLEAN, _read(first, CLEAN)[0].label)

    @property
    def counts(self) -> numpy.ndarray:
        """How often each resample takes each test example."""
        return self.drawn[CLEAN]

    def others(
        self, run: StoredRun, shift: str, levels: Sequence[Tensor]
    ) -> numpy.ndarray | list[numpy.ndarray] | None:
        """Return the counts of a shift's own examples, nothing where they are the test's.

        Where its levels have different labels, each has examples of its own and is drawn by itself.
        """
        if all(torch.equal(labels, self.labels[CLEAN]) for labels in levels):
            return None
        if all(torch.equal(labels, levels[0]) for labels in levels):
            return self._own(run, shift, levels[0])
        names = (f"{shift}, level {number}" for number in range(1, len(levels) + 1))
        return [self._own(run, *pair) for pair in zip(names, levels, strict=True)]

    def _own(self, run: StoredRun, name: str, labels: Tensor) -> numpy.ndarray:
        if name not in self.labels:
            self._take(name, labels)
        self.check(run, name, labels)
        return self.drawn[name]

    def check(self, run: StoredRun, shift: str, labels: Tensor) -> None:
        if not torch.equal(labels, self.labels[shift]):
            raise UserError(
                f"expected the examples of {self.first.scores_file} in {run.scores_file}, got "
                f"other labels of {shift}: only runs on the same data can be compared. Run the "
                "study again."
            )

    def _take(self, shift: str, labels: Tensor) -> None:
        self.labels[shift] = labels
        self.drawn[shift] = drawn_counts(len(labels), self.resamples, seed=len(self.drawn))


def estimate_series(
    results: Results, series: str, tests: tuple[PaperTest, ...], sample: SharedResamples
) -> SeriesEstimates:
    runs = [_draw_run(results, run, tests, sample) for run in results.runs if run.series == series]
    figures = {
        key: figure_of(mean_of_draws(run.draws[key] for run in runs)) for key in runs[0].draws
    }
    values = {
        test.name: torch.stack([run.values[test.name] for run in runs]).mean(0) for test in tests
    }
    return SeriesEstimates(len(runs), figures, values)


def _draw_run(
    results: Results, run: StoredRun, tests: tuple[PaperTest, ...], sample: SharedResamples
) -> RunDraws:
    clean, counts = _read(run, CLEAN)[0], sample.counts
    sample.check(run, CLEAN, clean.label)
    pooled: dict[str, dict[str, Draws]] = {}
    values: dict[str, list[Tensor]] = defaultdict(list)
    _add_values(values, tests, CLEAN, {0: clean})
    outside: dict[FigureKey, Draws] = {}
    for shift, levels in _shifts(results, run, tests):
        _add_values(values, tests, shift, levels)
        if shift in results.tested_shifts:
            others = sample.others(run, shift, [level.label for level in levels.values()])
            pooled[shift] = shift_draws([clean, *levels.values()], counts, others)
        if shift in results.outliers:
            drawn = outlier_set_draws(clean, levels[OUTLIER_LEVEL], counts)
            outside |= {(figure, shift): draws for figure, draws in drawn.items()}
    joined = {name: torch.cat(parts) for name, parts in values.items()}
    return RunDraws(_figure_draws(clean, pooled, counts) | outside, joined)


def _shifts(
    results: Results, run: StoredRun, tests: tuple[PaperTest, ...]
) -> Iterator[tuple[str, dict[int, Scores]]]:
    """Yield the shifts that figures or tests ask for, read when their turn comes."""
    asked = [shift for test in tests for shift, _ in test.levels if shift != CLEAN]
    for shift in dict.fromkeys([*results.tested_shifts, *results.outliers, *asked]):
        yield shift, _read(run, shift)


def _add_values(
    values: dict[str, list[Tensor]],
    tests: tuple[PaperTest, ...],
    shift: str,
    levels: dict[int, Scores],
) -> None:
    """Add to the values of each test what it asks of a shift."""
    for test in tests:
        for level, scores in levels.items():
            if (shift, level) in test.levels:
                values[test.name].append(getattr(scores, test.column).double())


def _figure_draws(
    clean: Scores, pooled: dict[str, dict[str, Draws]], counts: numpy.ndarray
) -> dict[FigureKey, Draws]:
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


def _read(run: StoredRun, shift: str) -> dict[int, Scores]:
    """Return the scores of a shift's levels, examples in their order."""
    wanted = open_scores(run).filter(polars.col("shift") == shift).sort("level", "example")
    with explaining_read_errors(run.scores_file):
        table = wanted.collect(engine="streaming")
    if table.is_empty():
        raise UserError(
            f"expected scores of {shift} in {run.scores_file}, found none: run the study again."
        )
    return scores_by_level(table)
