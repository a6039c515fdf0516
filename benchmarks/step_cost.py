"""What a FALCON step costs against a plain step, and a shifted image against SciPy's.

    python -m benchmarks.step_cost results/cost/steps.json

Steps: LeNet at batch 100 on 28x28, VGG19 on 32x32, an LSTM of 130 over 784 pixels and a small
transformer over 64 words, each kind of step against plain cross-entropy with the same Adam (fused),
the same memory format and the same threads; peak memory of a process of its own beside it. Shifts:
the nine affine families at ten levels on 10,000 images against SciPy's ``affine_transform`` image
by image (timed on some of the images and scaled up). All in CPU time of this process, the kinds
interleaved in one run, the least of the rounds, which noise can only lengthen; three repetitions of
all of it. The table, medians and the spread, goes into docs/cost.md.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy
import scipy.ndimage
import torch
from lightning_fabric import Fabric
from torch import nn

from benchmarks.cost_page import QUARTER, with_goals, write_page
from benchmarks.timing import cpu_time, repeated, write_figures
from falconcal.core.layout import to_channels_last, weights_to_channels_last
from falconcal.core.perturbation_point import find_perturbation_point
from falconcal.data import Bounds
from falconcal.methods import Falcon, L2Dropout
from falconcal.models import VGG, LeNet, PixelRecurrent, TokenTransformer
from falconcal.shifts import SHIFTS
from falconcal.shifts.affine import AFFINE_FAMILIES
from falconcal.training import Objective, Step
from falconcal.training.precision import Precision
from falconcal.training.run_steps import run_steps

IMAGES, SCIPY_IMAGES, AFFINE_ROUNDS = 10_000, 100, 3


@dataclass(frozen=True)
class Network:
    """A network, a batch for it, and how often its step is taken and timed."""

    make: Callable[[], nn.Module]
    batch: Callable[[], torch.Tensor]
    rounds: int
    steps: int


NETWORKS = {
    "LeNet": Network(LeNet, lambda: torch.rand(100, 1, 28, 28), 15, 10),
    "VGG19": Network(VGG, lambda: torch.rand(32, 3, 32, 32), 5, 1),
    "LSTM": Network(PixelRecurrent, lambda: torch.rand(32, 1, 28, 28), 5, 1),
    "transformer": Network(
        partial(TokenTransformer, 10, 1000, 64), lambda: torch.randint(1, 1000, (32, 64)), 15, 5
    ),
}
KINDS: dict[str, L2Dropout | Falcon] = {
    "plain": L2Dropout(),
    "shared": Falcon(gradient="shared"),
    "exact": Falcon(gradient="exact"),
    QUARTER: Falcon(gradient="shared", calibration_fraction=0.25),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", nargs=2, metavar=("NETWORK", "KIND"), help="only print memory")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak is not None:
        print(peak(*arguments.peak))
        return
    figures = repeated(measured) | {"threads": [arguments.threads]}
    print(with_goals(figures))
    if arguments.file is not None:
        write_figures(arguments.file, figures)
        write_page()


def measured() -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in NETWORKS:
        figures |= step_ratios(name) | memory_ratio(name)
    return figures | affine_ratio()


def step_ratios(name: str) -> dict[str, float]:
    """Return CPU time of a FALCON step relative to a plain one."""
    network = NETWORKS[name]
    steps = {kind: stepper(method, network) for kind, method in KINDS.items()}
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    for _ in range(network.rounds):
        for kind, step in steps.items():
            times[kind].append(cpu_time(lambda step=step: repeat(step, network.steps)))  # type: ignore[misc]
    least = {kind: min(seconds) for kind, seconds in times.items()}
    least[QUARTER] = statistics.fmean(times[QUARTER])  # which steps are longer is drawn at random
    examples = network.steps * len(network.batch())
    found = {f"step, {name}, {kind}": round(least[kind] / least["plain"], 2) for kind in least}
    found[f"step, {name}, {QUARTER}"] = round(least[QUARTER] / statistics.fmean(times["plain"]), 2)
    del found[f"step, {name}, plain"]
    rates = {kind: examples / least[kind] for kind in ("plain", "shared")}
    return found | {f"examples a CPU second, {name}, {kind}": round(rates[kind]) for kind in rates}


def repeat(step: Callable[[], object], times: int) -> None:
    """Take a step several times."""
    for _ in range(times):
        step()


def stepper(method: L2Dropout | Falcon, network: Network) -> Callable[[], object]:
    return step_of(network.make(), method.objectives(), network.batch())


def step_of(
    model: nn.Module,
    objectives: list[Objective],
    batch: torch.Tensor,
    precision: Precision = "32-true",
) -> Callable[[], object]:
    """Return a function that takes one training step of a method, as the loop does."""
    weights_to_channels_last(model)
    fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
    optimizers = [objective.optimizer(list(model.parameters())) for objective in objectives]
    wrapped, *stepped = fabric.setup(model, *optimizers)
    wrapped.train()
    inputs = to_channels_last(batch)
    labels, random = torch.randint(10, (len(inputs),)), torch.Generator().manual_seed(0)
    perturbation_point = find_perturbation_point(model, inputs)
    bounds = Bounds(0.0, 1.0) if inputs.is_floating_point() else None

    def step() -> None:
        batch = Step(
            wrapped, inputs.detach(), labels, 2, 10, random, bounds=bounds, unwrapped_model=model,
            perturbation_point=perturbation_point,
        )  # fmt: skip
        run_steps(fabric, [batch], objectives, stepped)

    return step


def memory_ratio(name: str) -> dict[str, float]:
    """Return the peak memory that FALCON steps add relative to plain ones."""
    command = [sys.executable, "-m", "benchmarks.step_cost", "--peak", name]
    plain, shared = (
        float(subprocess.run([*command, kind], capture_output=True, check=True, text=True).stdout)
        for kind in ("plain", "shared")
    )
    return {f"memory, {name}, shared": round(shared / plain, 2)}


def peak(name: str, kind: str) -> float:
    """Return how many megabytes steps of a kind add at most to what a process holds (Linux)."""
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    repeat(stepper(KINDS[kind], NETWORKS[name]), 3)
    return (kilobytes("VmHWM") - before) / 1024


def kilobytes(name: str) -> int:
    """Return what Linux says of this process's memory: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def affine_ratio() -> dict[str, float]:
    """Return how many times faster nine shifts at ten levels are than SciPy image by image."""
    images = torch.rand(IMAGES, 1, 28, 28)
    our_shifts(images[:1])  # the sampling matrices are made once
    ours, theirs = [], []
    for _ in range(AFFINE_ROUNDS):
        ours.append(cpu_time(partial(our_shifts, images)))
        theirs.append(cpu_time(partial(scipy_shifts, images[:SCIPY_IMAGES, 0].numpy())))
    scaled = min(theirs) * IMAGES / SCIPY_IMAGES
    return {"affine, times faster than SciPy": round(scaled / min(ours), 1)}


def our_shifts(images: torch.Tensor) -> None:
    for name, *_ in AFFINE_FAMILIES:
        for level in SHIFTS[name].levels:
            SHIFTS[name].at(images, level)


def scipy_shifts(images: numpy.ndarray) -> None:
    middle = numpy.array([14.5, 14.5])
    for _, strengths, matrix_of, _ in AFFINE_FAMILIES:
        for strength in strengths:
            matrix, offset = matrix_of(strength)
            for image in images:
                scipy.ndimage.affine_transform(
                    image, matrix, matrix @ (offset - middle) + middle, order=1, mode="nearest"
                )


if __name__ == "__main__":
    main()
