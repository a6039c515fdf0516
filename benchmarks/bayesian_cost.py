"""What a training step of a Bayesian network costs, relative to the ordinary one.

    python -m benchmarks.bayesian_cost results/cost/bayesian.json

LeNet at batch 100 on 28x28: a step of SVI, of last-layer SVI and of MNF against plain cross-entropy
with the same Adam (fused), the same memory format and the same threads. CPU time of this process,
the kinds interleaved in one run, the least of the rounds; three repetitions of all of it. The
table, medians and the spread, goes into docs/cost.md.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.cost_page import with_goals, write_page
from benchmarks.step_cost import step_of
from benchmarks.timing import cpu_time, repeated, write_figures
from falconcal.methods import MNF, SVI, L2Dropout, LastLayerSVI
from falconcal.methods.variational import VariationalMethod
from falconcal.models import LeNet

BATCH, EXAMPLES = 100, 60_000
ROUNDS, STEPS = 15, 4
METHODS: dict[str, VariationalMethod] = {
    "svi": SVI(), "last_layer_svi": LastLayerSVI(), "mnf": MNF(),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures = repeated(step_ratios) | {"threads": [arguments.threads]}
    print(with_goals(figures))
    if arguments.file is not None:
        write_figures(arguments.file, figures)
        write_page()


def step_ratios() -> dict[str, float]:
    """Return CPU time of a step by method, relative to a plain one."""
    torch.manual_seed(0)
    steps = {"plain": step_of(LeNet(), L2Dropout().objectives(), _batch())}
    for name, method in METHODS.items():
        steps[name] = step_of(method.build(LeNet()), method.objectives(), _batch())
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            times[name].append(cpu_time(partial(_repeat, step)))
    least = {name: min(seconds) for name, seconds in times.items()}
    return {f"step, LeNet, {name}": round(least[name] / least["plain"], 2) for name in METHODS}


def _batch() -> torch.Tensor:
    return torch.rand(BATCH, 1, 28, 28)


def _repeat(step: Callable[[], object]) -> None:
    for _ in range(STEPS):
        step()


if __name__ == "__main__":
    main()
