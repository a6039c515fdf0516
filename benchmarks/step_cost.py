"""What a FALCON step costs, and what a shifted image costs, against what one would use instead.

    python benchmarks/step_cost.py [--out docs/figures/step_cost.json]

Steps: LeNet at batch 100, each kind of step against plain cross-entropy with the same Adam (fused),
the same memory format and the same threads. Shifts: the nine affine families at ten levels on
10,000 images against SciPy's ``affine_transform`` image by image (timed on some of the images and
scaled up). All in CPU time of this process, the kinds interleaved in one run, the median of the
rounds.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy
import scipy.ndimage
import torch
from lightning_fabric import Fabric

from falconcal.data import Bounds
from falconcal.methods import Falcon, L2Dropout
from falconcal.models import LeNet
from falconcal.shifts import SHIFTS
from falconcal.shifts.affine import FAMILIES
from falconcal.training import Step, run_steps

BATCH, WARM_UP, ROUNDS, STEPS = 100, 10, 15, 10
IMAGES, SCIPY_IMAGES = 10_000, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures = {**step_ratios(), **affine_ratio(), "threads": arguments.threads}
    print(json.dumps(figures, indent=2))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


def step_ratios() -> dict[str, float]:
    """Return CPU time of a FALCON step relative to a plain one."""
    steps = {
        "plain": stepper(L2Dropout()),
        "shared": stepper(Falcon(gradient="shared")),
        "exact": stepper(Falcon(gradient="exact")),
        "shared, a quarter of the batches": stepper(Falcon(gradient="shared", share=0.25)),
    }
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            times[name].append(cpu_time(lambda step=step: [step() for _ in range(STEPS)]))  # type: ignore[misc]
    plain = statistics.median(times.pop("plain"))
    print(f"plain step: {1000 * plain / STEPS:.1f} ms")
    return {
        f"step, {name}": round(statistics.median(seconds) / plain, 2)
        for name, seconds in times.items()
    }


def stepper(method: L2Dropout | Falcon) -> Callable[[], object]:
    """Return a function that takes one training step of the method, as the loop does."""
    model = LeNet().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    objectives = method.objectives()
    fabric = Fabric(accelerator="cpu", devices=1)
    optimizers = [objective.optimizer(list(model.parameters())) for objective in objectives]
    wrapped, *stepped = fabric.setup(model, *optimizers)
    wrapped.train()
    inputs = torch.rand(BATCH, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    labels, random = torch.randint(10, (BATCH,)), torch.Generator().manual_seed(0)

    def step() -> None:
        batch = Step(wrapped, inputs.detach(), labels, 2, 10, random, bounds=Bounds(0.0, 1.0))
        run_steps(fabric, [batch], objectives, stepped)

    return step


def affine_ratio() -> dict[str, float]:
    """Return how many times faster nine shifts at ten levels are than SciPy image by image."""
    images = torch.rand(IMAGES, 1, 28, 28)
    our_shifts(images[:1])  # the sampling matrices are made once
    ours, theirs = [], []
    for _ in range(3):
        ours.append(cpu_time(partial(our_shifts, images)))
        theirs.append(cpu_time(partial(scipy_shifts, images[:SCIPY_IMAGES, 0].numpy())))
    scaled = statistics.median(theirs) * IMAGES / SCIPY_IMAGES
    return {"affine, times faster than SciPy": round(scaled / statistics.median(ours), 1)}


def our_shifts(images: torch.Tensor) -> None:
    for name, *_ in FAMILIES:
        for level in SHIFTS[name].levels:
            SHIFTS[name].at(images, level)


def scipy_shifts(images: numpy.ndarray) -> None:
    middle = numpy.array([14.5, 14.5])
    for _, strengths, matrix_of, _ in FAMILIES:
        for strength in strengths:
            matrix, offset = matrix_of(strength)
            for image in images:
                scipy.ndimage.affine_transform(
                    image, matrix, matrix @ (offset - middle) + middle, order=1, mode="nearest"
                )


def cpu_time(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
