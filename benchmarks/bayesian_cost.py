"""What a training step of a Bayesian network costs, relative to the ordinary one.

    python -m benchmarks.bayesian_cost results/cost/bayesian.json

LeNet at batch 100 on 28x28: a step of SVI, of last-layer SVI and of MNF against plain cross-entropy
with the same Adam (fused), the same memory format and the same threads. CPU time of this process,
the kinds interleaved in one run, the least of the rounds. The table goes into docs/cost.md.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.pages import write_between
from benchmarks.step_cost import cpu_time, step_of
from falconcal.methods import MNF, SVI, L2Dropout, LastLayerSVI
from falconcal.methods.variational import Variational
from falconcal.models import LeNet

BATCH, EXAMPLES = 100, 60_000
ROUNDS, STEPS = 15, 4
METHODS: dict[str, Variational] = {
    "svi": SVI(), "last_layer_svi": LastLayerSVI(), "mnf": MNF(),
}  # fmt: skip
GOALS = {"svi": "at most 2.5"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures = {**step_ratios(), "threads": arguments.threads}
    print(json.dumps(figures, indent=2))
    if arguments.file is not None:
        arguments.file.write_text(json.dumps(figures, indent=2) + "\n")
        write_page(figures)


def step_ratios() -> dict[str, float]:
    """Return CPU time of a step by method, relative to a plain one."""
    torch.manual_seed(0)
    steps = {"plain": step_of(LeNet(), L2Dropout().objectives(), _batch())}
    for name, method in METHODS.items():
        steps[name] = step_of(method.structure(LeNet()), method.objectives(EXAMPLES), _batch())
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            times[name].append(cpu_time(partial(_repeat, step)))
    least = {name: min(seconds) for name, seconds in times.items()}
    return {name: round(least[name] / least["plain"], 2) for name in METHODS}


def _batch() -> torch.Tensor:
    return torch.rand(BATCH, 1, 28, 28)


def _repeat(step: Callable[[], object]) -> None:
    for _ in range(STEPS):
        step()


def write_page(figures: dict[str, float]) -> None:
    """Put the table into the page on cost."""
    lines = ["| what | figure | goal |", "| --- | ---: | --- |"]
    for name, value in figures.items():
        what = f"step, LeNet, `{name}`" if name in METHODS else name
        lines.append(f"| {what} | {value} | {GOALS.get(name, '')} |")
    write_between("docs/cost.md", "bayesian", "bayesian_cost", "\n".join(lines))


if __name__ == "__main__":
    main()
