"""How often 95 % intervals hold the truth, over simulated data whose truth is known.

    python benchmarks/interval_coverage.py results/evidence/coverage.json --workers 2

Two classes, confidences even from 0.6 to 1, each right with its confidence less a gap: the true
calibration error is the gap, and the true accuracy, NLL and Brier score are integrals. The plain
percentile bootstrap of ECE stands beside ours to show what its bias does.
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy
import scipy.integrate
import torch

from falconcal.evidence.intervals import bounds_of_draws, draws, interval
from falconcal.metrics import expected_calibration_error
from falconcal.predictions import Predictions, Scores

GAPS = (0.0, 0.01, 0.02, 0.05, 0.1)
LOW, HIGH = 0.6, 1.0
RESAMPLES = 500
PAGE = Path(__file__).parents[1] / "docs" / "evidence.md"
MARK, END = (
    "<!-- coverage: written by benchmarks/interval_coverage.py -->",
    "<!-- end of coverage -->",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--examples", type=int, nargs="+", default=[2000])
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.workers, initializer=_one_thread) as pool:
        rows = [
            row
            for examples in arguments.examples
            for row in coverage(pool, examples, arguments.trials)
        ]
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    settings = {"trials": arguments.trials, "resamples": RESAMPLES, "level": 0.95}
    arguments.file.write_text(json.dumps({**settings, "rows": rows}, indent=1) + "\n")
    write_page(rows, arguments.trials)


def coverage(pool: ProcessPoolExecutor, examples: int, trials: int) -> Iterator[dict[str, object]]:
    """Yield the share of trials whose interval holds the truth, metric by metric."""
    for gap in GAPS:
        found = list(pool.map(partial(trial, examples, gap), range(trials), chunksize=10))
        names = found[0] if gap == 0 else {name: 0 for name in found[0] if "ece" in name}
        for name in names:
            share = float(numpy.mean([held[name] for held in found]))
            row = {"metric": name, "gap": gap, "examples": examples, "covered": round(share, 3)}
            print(json.dumps(row), flush=True)
            yield row


def write_page(rows: list[dict[str, object]], trials: int) -> None:
    """Put the table into the page on evidence."""
    lines = [
        f"{trials} trials, {RESAMPLES} resamples, level 0.95:",
        "",
        "| metric | true calibration error | examples | covered |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {row['metric']} | {row['gap']} | {row['examples']} | {row['covered']} |"
            for row in rows
        ),
    ]
    before, _, rest = PAGE.read_text().partition(MARK)
    PAGE.write_text(f"{before}{MARK}\n" + "\n".join(lines) + f"\n{END}{rest.partition(END)[2]}")


def trial(examples: int, gap: float, seed: int) -> dict[str, bool]:
    """Return for each metric whether the interval of one simulated sample holds the truth."""
    scores = simulated(examples, gap, seed)
    truths = {"ece": gap, **({} if gap else true_means())}
    held = {}
    for name, truth in truths.items():
        found = interval(scores, name, resamples=RESAMPLES, seed=seed)
        held[name] = found.low <= truth <= found.high
    value = expected_calibration_error(scores)
    plain = bounds_of_draws(value, draws(scores, "ece", RESAMPLES, seed), 0.95)
    held["ece, plain percentile"] = plain.low <= gap <= plain.high
    return held


def simulated(examples: int, gap: float, seed: int) -> Scores:
    generator = numpy.random.default_rng([seed, examples, round(1000 * gap)])
    confidence = generator.uniform(LOW, HIGH, examples)
    right = generator.uniform(size=examples) < confidence - gap
    probabilities = numpy.stack([confidence, 1 - confidence], 1)
    return Predictions.from_probabilities(probabilities, (~right).astype(int)).scores()


def true_means() -> dict[str, float]:
    """Return the expected accuracy, NLL and Brier score of calibrated data, by integration."""

    def mean(value: object) -> float:
        integral, _ = scipy.integrate.quad(value, LOW, HIGH)  # type: ignore[call-overload]
        return float(integral) / (HIGH - LOW)

    return {
        "accuracy": mean(lambda p: p),
        "nll": mean(lambda p: -p * numpy.log(p) - (1 - p) * numpy.log1p(-p) if p < 1 else 0.0),
        "brier": mean(lambda p: 2 * p * (1 - p)),
    }


def _one_thread() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
