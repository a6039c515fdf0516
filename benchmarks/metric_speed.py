"""Speed of metrics and evidence compared with other packages, in one run.

    pip install -e '.[dev,peers]' --constraint constraints.txt
    python -m benchmarks.metric_speed results/evidence/speed.json

One thread. Times are CPU seconds, the packages interleaved, the least of several rounds;
three repetitions of all of it, of which the page shows medians and the spread. Peak memory is that
of a process of its own.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy
import torch

from benchmarks.pages import table, write_between
from benchmarks.timing import Figures, cpu_time, repeated, shown, write_figures
from falconcal import Predictions, expected_calibration_error
from falconcal.evidence.intervals import bootstrap_values
from falconcal.metrics import Accumulator

BINS, RESAMPLES = 10, 1000
OURS = "falconcal"
ECE, RESAMPLING = "ECE, 1,000,000 x 10", "1,000 resamples of ECE, 100,000 examples"
MEGABYTES = "megabytes of an accumulator at"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--accumulate", type=int, help="only print the peak memory at this size")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.accumulate is not None:
        print(accumulated(arguments.accumulate))
        return
    found = repeated(partial(measured, arguments.rounds))
    print(page(found))
    if arguments.file is not None:
        write_figures(arguments.file, found)
        write_between("docs/results/evidence.md", "speed", "metric_speed", page(found))


def measured(rounds: int) -> dict[str, float]:
    """Return CPU seconds by task and rival, how many times ours the others take, and megabytes."""
    tasks = {ECE: calibration_error(rounds), RESAMPLING: bootstrap()}
    found = {
        f"{task}: {rival}": value for task, times in tasks.items() for rival, value in times.items()
    }
    found |= {
        f"{task}: {rival}, ratio": round(value / times[OURS], 1)
        for task, times in tasks.items()
        for rival, value in times.items()
        if rival != OURS
    }
    return found | {f"{MEGABYTES} {size:,}": peak(size) for size in (10**5, 10**6, 10**7)}


def calibration_error(rounds: int) -> dict[str, float]:
    """Time ECE from 1,000,000 x 10 probabilities and labels, checks included."""
    from netcal import metrics
    from torchmetrics.functional.classification import multiclass_calibration_error

    probs, labels = simulated(1_000_000)
    double, whole = probs.double().numpy(), labels.numpy()
    return timed(
        {
            OURS: lambda: expected_calibration_error(
                Predictions.from_probabilities(probs, labels), BINS
            ),
            "torchmetrics": lambda: multiclass_calibration_error(probs, labels, 10, n_bins=BINS),
            "netcal (float64)": lambda: metrics.ECE(BINS).measure(double, whole),
        },
        rounds,
    )


def bootstrap() -> dict[str, float]:
    """Time 1,000 resamples of ECE on 100,000 examples, ours and a loop over NumPy arrays."""
    scores = Predictions.from_probabilities(*simulated(100_000)).scores()
    confidence, correct = scores.confidence.numpy(), scores.correct.numpy()

    def plain() -> None:
        generator = numpy.random.default_rng(0)
        for _ in range(RESAMPLES):
            chosen = generator.integers(len(confidence), size=len(confidence))
            plain_error(confidence[chosen], correct[chosen])

    whole = plain_error(confidence, correct)
    assert abs(whole - expected_calibration_error(scores)) < 1e-9
    return timed({OURS: lambda: bootstrap_values(scores, "ece", RESAMPLES, 0), "loop": plain}, 3)


def plain_error(confidence: numpy.ndarray, correct: numpy.ndarray) -> float:
    index = numpy.clip(numpy.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = numpy.bincount(index, correct, BINS) - numpy.bincount(index, confidence, BINS)
    return float(numpy.abs(gaps).sum() / len(confidence))


def timed(rivals: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the least CPU seconds of each, one after the other in every round."""
    least = dict.fromkeys(rivals, float("inf"))
    for _ in range(rounds):
        for name, run in rivals.items():
            least[name] = min(least[name], cpu_time(run))
    return {name: round(seconds, 4) for name, seconds in least.items()}


def simulated(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the probabilities of ten classes, and labels drawn from them."""
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(3 * torch.randn(examples, 10, generator=generator), 1)
    return probs, torch.multinomial(probs, 1, generator=generator)[:, 0]


def peak(examples: int) -> float:
    """Return the peak memory, in megabytes, of a process that accumulates so many examples."""
    command = [sys.executable, "-m", "benchmarks.metric_speed", "--accumulate", str(examples)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def accumulated(examples: int) -> float:
    Accumulator.over(
        Predictions.from_probabilities(*simulated(10_000)) for _ in range(examples // 10_000)
    ).metrics()
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def page(found: Figures) -> str:
    """Return the table of the page on evidence."""
    rivals = [name.removesuffix(", ratio") for name in found if name.endswith(", ratio")]
    rows = [
        [
            rival,
            shown(found[rival]),
            shown(found[f"{rival.partition(':')[0]}: {OURS}"]),
            shown(found[f"{rival}, ratio"]),
        ]
        for rival in rivals
    ]
    lines = table(["against", "theirs, s", "ours, s", "ratio"], rows)
    sizes = {
        name.removeprefix(MEGABYTES): shown(values)
        for name, values in found.items()
        if name.startswith(MEGABYTES)
    }
    memory = ", ".join(f"{size} at{count}" for count, size in sizes.items())
    return f"{lines}\n\nPeak memory of a process with an accumulator, in MB by examples: {memory}."


if __name__ == "__main__":
    main()
