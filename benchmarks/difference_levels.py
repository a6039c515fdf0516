"""How often two methods are told apart, over simulated data whose true errors are known.

    python -m benchmarks.difference_levels results/evidence/differences.json --workers 2

Five classes, and two methods on the same examples: what is hard for one is often hard for the
other. A sure method has all confidences in the highest bin, a wide one spreads them over eight. The
true calibration error is the gap between confidence and the chance to be right, once shared by all
bins, once in the highest alone. Our interval is compared with the plain percentiles of the paired
bootstrap and their mirror image, from the same draws. A pooled figure has two shifts of four
levels, each with the same error.
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy
import scipy.special
import torch

from benchmarks.pages import write_between
from falconcal.evidence.comparisons import error_figures
from falconcal.evidence.differences import Estimate, difference_of
from falconcal.evidence.intervals import bounds_of_draws
from falconcal.evidence.pooled import drawn_counts, figure_of, mean_of_draws, shift_draws
from falconcal.metrics import METRICS
from falconcal.metrics.predictions import Predictions, Scores

LEVEL, RESAMPLES, EXAMPLES, CLASSES = 0.95, 1000, 2000, 5
COMMON = 0.6  # share of the variance of what makes an example hard that both methods feel
SHIFTS, LEVELS = 2, 4


@dataclass(frozen=True)
class Method:
    """How a simulated method spreads its confidences, and its true error."""

    name: str
    lowest: float
    error: float
    one_bin: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {self.error}" + (" in one bin" if self.one_bin else "")


def sure(error: float) -> Method:
    return Method("sure", 0.9, error)


def wide(error: float, *, one_bin: bool = False) -> Method:
    return Method("wide", 0.2, error, one_bin)


PAIRS = (
    (sure(0.0), wide(0.0)),
    (sure(0.02), wide(0.02)),
    (sure(0.02), wide(0.02, one_bin=True)),
    (wide(0.02), wide(0.02, one_bin=True)),
    (sure(0.05), wide(0.05)),
    (wide(0.05), wide(0.05)),
    (wide(0.05), wide(0.05, one_bin=True)),
    (sure(0.05), wide(0.1)),
    (wide(0.05), sure(0.1)),
    (wide(0.05), wide(0.1)),
    (sure(0.0), wide(0.05)),
    (wide(0.0), sure(0.05)),
    (wide(0.0), wide(0.05)),
)
POOLED_PAIRS = (
    (sure(0.0), wide(0.0)),
    (sure(0.02), wide(0.02)),
    (wide(0.05), wide(0.05)),
    (sure(0.05), wide(0.1)),
    (wide(0.05), wide(0.1)),
)
Pair = tuple[Method, Method]
Trial = dict[str, tuple[float, float]]  # bounds by way


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--pooled-trials", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    counts = arguments.trials, arguments.pooled_trials
    with ProcessPoolExecutor(arguments.workers, initializer=_one_thread) as pool:
        rows = list(measured(pool, *counts))
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    settings = {"resamples": RESAMPLES, "examples": EXAMPLES, "level": LEVEL}
    arguments.file.write_text(json.dumps({**settings, "rows": rows}, indent=1) + "\n")
    write_page(rows, *counts)


def measured(
    pool: ProcessPoolExecutor, trials: int, pooled_trials: int
) -> Iterator[dict[str, object]]:
    """Yield how often each pair is told apart, and how often the true difference is held."""
    for pair in PAIRS:
        yield _row("ece", pair, pool.map(partial(single, pair), range(trials), chunksize=10))
    for figure in ("micro_ece", "macro_ece"):
        for pair in POOLED_PAIRS:
            tried = pool.map(partial(pooled, pair, figure), range(pooled_trials), chunksize=10)
            yield _row(figure, pair, tried)


def single(pair: Pair, seed: int) -> Trial:
    """Try the difference of plain ECE."""
    one, other = simulated(pair, 1, seed)
    return tried(*error_figures(one[0], other[0], METRICS["ece"], LEVEL, RESAMPLES, seed, None))


def pooled(pair: Pair, figure: str, seed: int) -> Trial:
    """Try the difference of a pooled figure, every level as wrong as the others."""
    counts = drawn_counts(EXAMPLES, RESAMPLES, seed)
    first, second = (
        figure_of(
            mean_of_draws(
                shift_draws(levels[start : start + LEVELS], counts)[figure]
                for start in range(0, SHIFTS * LEVELS, LEVELS)
            ),
            LEVEL,
        )
        for levels in simulated(pair, SHIFTS * LEVELS, seed)
    )
    return tried(first, second)


def tried(first: Estimate, second: Estimate) -> Trial:
    """Return the bounds of a difference: ours, the plain percentiles, and these mirrored."""
    ours, draws = difference_of(first, second), first.resampled - second.resampled
    plain = bounds_of_draws(ours.value, draws, LEVEL)
    mirrored = 2 * ours.value - plain.high, 2 * ours.value - plain.low
    return {"ours": (ours.low, ours.high), "plain": (plain.low, plain.high), "mirrored": mirrored}


def simulated(pair: Pair, levels: int, seed: int) -> list[list[Scores]]:
    """Return the scores of both methods at each level, all of the same examples."""
    generator = numpy.random.default_rng([seed, levels])
    hard = generator.normal(size=EXAMPLES)
    return [[_answers(method, hard, generator) for _ in range(levels)] for method in pair]


def _answers(method: Method, hard: numpy.ndarray, generator: numpy.random.Generator) -> Scores:
    confidence = generator.uniform(method.lowest, 1.0, len(hard))
    highest = (confidence > 0.9) * (1 - method.lowest) / 0.1  # of mean 1
    gap = method.error * (highest if method.one_bin else 1.0)
    own = generator.normal(size=len(hard))
    luck = scipy.special.ndtr(COMMON**0.5 * hard + (1 - COMMON) ** 0.5 * own)  # even from 0 to 1
    right = luck < confidence - gap
    rest = (1 - confidence) / (CLASSES - 1)
    probabilities = numpy.repeat(rest[:, None], CLASSES, 1)
    probabilities[numpy.arange(len(hard)), (~right).astype(int)] = confidence
    labels = numpy.zeros(len(hard), dtype=int)
    return Predictions.from_probabilities(probabilities, labels).scores()


def _row(figure: str, pair: Pair, trials: Iterator[Trial]) -> dict[str, object]:
    found, truth = list(trials), pair[0].error - pair[1].error
    row: dict[str, object] = {"figure": figure, "first": str(pair[0]), "second": str(pair[1])}
    row["truth"] = round(truth, 4)
    for way in found[0]:
        low, high = numpy.array([trial[way] for trial in found]).T
        held = (low <= truth) & (truth <= high)
        row[f"told_apart_{way}"] = round(float(((low > 0) | (high < 0)).mean()), 3)
        row[f"covered_{way}"] = round(float(held.mean()), 3)
        row[f"width_{way}"] = round(float((high - low).mean()), 4)
    print(json.dumps(row), flush=True)
    return row


def write_page(rows: list[dict[str, object]], trials: int, pooled_trials: int) -> None:
    """Put the table into the page on evidence."""
    lines = [
        f"{trials} trials of ECE and {pooled_trials} of pooled figures, {EXAMPLES} examples, "
        f"{RESAMPLES} resamples, level {LEVEL}; plain percentiles / mirrored in brackets:",
        "",
        "| figure | first | second | told apart | true difference covered | mean width |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        *(_line(row) for row in rows),
    ]
    write_between("docs/results/evidence.md", "differences", "difference_levels", "\n".join(lines))


def _line(row: dict[str, object]) -> str:
    cells = [str(row["figure"]), str(row["first"]), str(row["second"])]
    for name in ("told_apart", "covered"):
        ours, plain, mirrored = (row[f"{name}_{way}"] for way in ("ours", "plain", "mirrored"))
        cells.append(f"{ours:.3f} ({plain:.3f} / {mirrored:.3f})")
    return f"| {' | '.join(cells)} | {row['width_ours']} ({row['width_plain']}) |"


def _one_thread() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
