"""What the scikit-learn estimator costs against scikit-learn's own network.

    python -m benchmarks.estimator_cost results/estimator/cost.json

``FalconClassifier`` and ``MLPClassifier`` on scikit-learn's digits, 1,797 rows of 64 numbers, both
with two layers of 64, batches of 32, Adam at the same learning rate, 30 epochs and no early
stopping: plain training (no entropy term, no calibration step) and FALCON on every batch. One
thread, CPU time of this process, the kinds interleaved, the least of the rounds, which noise can
only lengthen; three repetitions of all of it. The table goes into docs/cost.md.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from benchmarks.pages import table, write_between
from benchmarks.timing import Figures, cpu_time, repeated, shown, write_figures
from falconcal import FalconClassifier

EPOCHS, BATCH, WIDTHS, RATE, ROUNDS = 30, 32, (64, 64), 3e-3, 4
PLAIN = {"calibration_fraction": 0.0}
GOALS = {"plain": 1.5, "FALCON": 3.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # MLPClassifier would train longer
    figures = repeated(measured)
    print(page(figures))
    if file is not None:
        write_figures(file, figures)
        write_between("docs/cost.md", "estimator", "estimator_cost", page(figures))


def page(figures: Figures) -> str:
    rows = [
        (f"{name}, times MLPClassifier", shown(figures[name]), f"at most {goal:g}")
        for name, goal in GOALS.items()
    ]
    per_step = "MLPClassifier, microseconds of CPU per step"
    return table(("what", "figure", "goal"), [*rows, (per_step, shown(figures[per_step]), "")])


def measured() -> dict[str, float]:
    rows, labels = load_digits(return_X_y=True)
    fits: dict[str, Callable[[], object]] = {
        "own": partial(peer().fit, rows, labels),
        "plain": partial(ours(entropy_weight=0.0, settings=PLAIN).fit, rows, labels),
        "FALCON": partial(ours().fit, rows, labels),
    }
    times: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(ROUNDS):
        for name, fit in fits.items():
            times[name].append(cpu_time(fit))
    least = {name: min(seconds) for name, seconds in times.items()}
    steps = EPOCHS * -(-len(rows) // BATCH)
    ratios = {name: round(least[name] / least["own"], 2) for name in GOALS}
    return ratios | {
        "MLPClassifier, microseconds of CPU per step": round(1e6 * least["own"] / steps)
    }


def ours(**settings: Any) -> FalconClassifier:
    return FalconClassifier(
        hidden=WIDTHS, epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE, early_stopping=False,
        random_state=0, **settings,
    )  # fmt: skip


def peer() -> MLPClassifier:
    return MLPClassifier(
        WIDTHS, batch_size=BATCH, max_iter=EPOCHS, learning_rate_init=RATE,
        n_iter_no_change=EPOCHS, random_state=0,
    )  # fmt: skip


if __name__ == "__main__":
    main()
