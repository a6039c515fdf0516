"""How often 95 % intervals hold the truth, over simulated data whose truth is known.

    python -m benchmarks.interval_coverage results/evidence/coverage.json --workers 2

Two classes, confidences uniform from 0.6 to 1, each right with its confidence less a gap: the true
calibration error is the gap, and the true accuracy, NLL and Brier score are integrals. Once all
bins share the error, once the highest bin has it alone. The plain percentile bootstrap of ECE is
shown next to ours because of its bias. For AUROC the confidences of in-domain examples and of
outliers are powers of a uniform number, so that the truth is a fraction of two powers.
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

from benchmarks.pages import write_between
from falconcal.evidence.intervals import (
    Interval,
    bootstrap_values,
    bounds_of_draws,
    interval,
    outlier_interval,
)
from falconcal.metrics.predictions import Predictions, Scores

GAPS = (0.0, 0.01, 0.02, 0.05, 0.1)
LOW, HIGH = 0.6, 1.0
INSIDE, OUTSIDE = 4.0, 1.0
RESAMPLES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--examples", type=int, nargs="+", default=[2000, 20000])
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
    """Yield the share of trials whose interval holds the truth, and its mean width."""
    for measured in (means, even_errors, one_bin_errors):
        for gap in GAPS if measured is not means else (0.0,):
            found = list(pool.map(partial(measured, examples, gap), range(trials), chunksize=10))
            for name in found[0]:
                held = [trial[name][0] for trial in found]
                widths = [trial[name][1] for trial in found]
                row = {
                    "metric": name,
                    "truth": gap if measured is not means else round(found[0][name][2], 4),
                    "examples": examples,
                    "covered": round(float(numpy.mean(held)), 3),
                    "width": round(float(numpy.mean(widths)), 4),
                }
                print(json.dumps(row), flush=True)
                yield row


def write_page(rows: list[dict[str, object]], trials: int) -> None:
    """Put the table into the page on evidence."""
    lines = [
        f"{trials} trials, {RESAMPLES} resamples, level 0.95:",
        "",
        "| metric | truth | examples | covered | mean width |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {row['metric']} | {row['truth']} | {row['examples']} | {row['covered']:.3f} | "
            f"{row['width']} |"
            for row in rows
        ),
    ]
    write_between("docs/results/evidence.md", "coverage", "interval_coverage", "\n".join(lines))


Trial = tuple[bool, float, float]  # whether the truth is held, the width, the truth


def means(examples: int, gap: float, seed: int) -> dict[str, Trial]:
    """Try the intervals of figures that have no bias."""
    scores = simulated(examples, gap, seed)
    tried = {
        name: _tried(interval(scores, name, resamples=RESAMPLES, seed=seed), truth)
        for name, truth in true_means().items()
    }
    found = outlier_interval(*two_samples(examples, seed), resamples=RESAMPLES, seed=seed)
    return {**tried, "auroc": _tried(found, INSIDE / (INSIDE + OUTSIDE))}


def even_errors(examples: int, gap: float, seed: int) -> dict[str, Trial]:
    """Try ours and the plain percentile interval where all bins share the error."""
    scores = simulated(examples, gap, seed)
    plain = bounds_of_draws(0.0, bootstrap_values(scores, "ece", RESAMPLES, seed), 0.95)
    return {
        "ece": _tried(interval(scores, "ece", resamples=RESAMPLES, seed=seed), gap),
        "ece, plain percentile": _tried(plain, gap),
    }


def one_bin_errors(examples: int, gap: float, seed: int) -> dict[str, Trial]:
    """Try both where the highest bin, a quarter of the examples, has the whole error."""
    scores = simulated(examples, gap, seed, highest_alone=True)
    plain = bounds_of_draws(0.0, bootstrap_values(scores, "ece", RESAMPLES, seed), 0.95)
    found = interval(scores, "ece", resamples=RESAMPLES, seed=seed)
    return {
        "ece, one bin": _tried(found, gap),
        "ece, one bin, plain percentile": _tried(plain, gap),
    }


def _tried(found: Interval, truth: float) -> Trial:
    return found.low <= truth <= found.high, found.high - found.low, truth


def simulated(examples: int, gap: float, seed: int, *, highest_alone: bool = False) -> Scores:
    generator = numpy.random.default_rng([seed, examples, round(1000 * gap)])
    confidence = generator.uniform(LOW, HIGH, examples)
    gaps = 4 * gap * (confidence > 0.9) if highest_alone else gap
    return _two_class(confidence, generator.uniform(size=examples) < confidence - gaps)


def two_samples(examples: int, seed: int) -> tuple[Scores, Scores]:
    """Return half of the examples as in-domain ones, and half as outliers, less sure."""
    generator = numpy.random.default_rng([seed, examples])
    right = numpy.ones(examples // 2, dtype=bool)
    inside, outside = (
        _two_class(0.5 + 0.5 * generator.uniform(size=examples // 2) ** (1 / power), right)
        for power in (INSIDE, OUTSIDE)
    )
    return inside, outside


def _two_class(confidence: numpy.ndarray, right: numpy.ndarray) -> Scores:
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
