"""What bfloat16 brings in training VGG19, and what it costs in accuracy and calibration.

    python -m benchmarks.half_precision results/cost/half_precision.json

Speed: training steps of VGG19 on 32 x 32 images with channels last, autocast to bfloat16 against
float32, interleaved, the least of the rounds. Effect: FALCON of the study ``digits`` in both
precisions, seeds 0 to 4, on all test images: the difference of the means beside the standard
deviation between the seeds of float32. Some machines cannot compute in bfloat16, and trying may
break later work in the same process: each part runs in a process of its own, and where it fails the
command prints "not measurable here" and succeeds. The table goes into docs/cost.md.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from lightning_fabric import Fabric
from torch import nn

from benchmarks.pages import write_between
from falconcal.core.layout import to_channels_last, weights_to_channels_last
from falconcal.data import load_dataset
from falconcal.evaluation.under_shift import evaluate
from falconcal.methods import Falcon
from falconcal.models import VGG, make_model
from falconcal.shifts import affine_shifts
from falconcal.training.precision import Precision

HALF: Precision = "bf16-mixed"
FULL: Precision = "32-true"
GOAL, ROUNDS, BATCH = 1.6, 5, 32
SEEDS = range(5)
FASTER = "VGG19, steps in bfloat16, times faster"
FIGURES = ("accuracy", "clean ECE", "micro ECE", "macro ECE")
COLUMNS = ("float32", "bfloat16 less float32", "standard deviation between seeds")
FALCON = Falcon(
    epochs=30, learning_rate=1e-3, dropout=0.0, entropy_weight=0.5, calibration_learning_rate=0.01
)  # as the study digits has it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--part", choices=PARTS, help="only print the figures of this part")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.part is not None:
        print(json.dumps(PARTS[arguments.part](arguments)))
        return
    figures: dict[str, float] = {}
    for name in PARTS:
        found = in_own_process(name, arguments)
        if found is None:
            return
        figures |= found
    print(json.dumps(figures, indent=2))
    if arguments.file is not None:
        arguments.file.write_text(json.dumps(figures, indent=2) + "\n")
        write_page(figures)


def in_own_process(part: str, arguments: argparse.Namespace) -> dict[str, float] | None:
    """Return the figures of a part, or None, after printing why, where bfloat16 does not work."""
    command = [sys.executable, "-m", "benchmarks.half_precision", "--part", part]
    command += ["--threads", str(arguments.threads)]
    answer = subprocess.run(command, capture_output=True, check=False, text=True)
    if answer.returncode == 0:
        found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
        return found
    reason = refusal(answer.returncode, answer.stderr)
    if reason is None:
        sys.exit(answer.stderr)
    print(f"not measurable here: this machine cannot train in bfloat16 ({reason})")
    return None


def refusal(code: int, messages: str) -> str | None:
    """Return how a machine without bfloat16 refused it, or None for any other failure."""
    if code == -signal.SIGILL:
        return "illegal instruction"
    last = (messages.strip().splitlines() or [""])[-1]
    words = ("could not create a primitive", "not implemented for 'BFloat16'")
    return last if last.startswith("RuntimeError") and any(one in last for one in words) else None


def speed(_: argparse.Namespace) -> dict[str, float]:
    """Return how many times faster a step in bfloat16 is."""
    steps = {precision: stepper(precision) for precision in (FULL, HALF)}
    times: dict[str, list[float]] = {precision: [] for precision in steps}
    for number in range(ROUNDS + 1):
        for precision, step in steps.items():
            started = time.perf_counter()
            step()
            if number > 0:  # the first makes room
                times[precision].append(time.perf_counter() - started)
    ratio = min(times[FULL]) / min(times[HALF])
    return {FASTER: round(ratio, 2)}


def stepper(precision: Precision) -> Callable[[], None]:
    """Return a function that takes one training step as the loop does."""
    torch.manual_seed(0)
    model = VGG()
    weights_to_channels_last(model)
    fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
    wrapped, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), fused=True))
    images, labels = to_channels_last(torch.rand(BATCH, 3, 32, 32)), torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        fabric.backward(nn.functional.cross_entropy(wrapped(images), labels))
        optimizer.step()

    return step


def effect(_: argparse.Namespace) -> dict[str, float]:
    """Return by how much each figure differs between the precisions, and between seeds."""
    full, half = ([trained(seed, precision) for seed in SEEDS] for precision in (FULL, HALF))
    figures = {}
    for name in FIGURES:
        theirs, ours = ([one[name] for one in some] for some in (full, half))
        difference = statistics.fmean(ours) - statistics.fmean(theirs)
        values = (statistics.fmean(theirs), difference, statistics.stdev(theirs))
        for column, value in zip(COLUMNS, values, strict=True):
            figures[f"{name}, {column}"] = round(value, 4)
    return figures


def trained(seed: int, precision: Precision) -> dict[str, float]:
    """Return what a network of FALCON has on the test images of digits."""
    data = load_dataset("digits")
    method = replace(FALCON, seed=seed, precision=precision)
    batches = data.training_batches(100, seed)
    model = method.fit(make_model("lenet", data, seed=seed), batches, data.validation.batches(500))
    rows = evaluate(model, data.test, list(affine_shifts("middle").values()))
    clean = dict(rows.filter(shift="clean").select("metric", "value").iter_rows())
    shifted = {name: rows.filter(metric=name)["value"] for name in ("micro_ece", "macro_ece")}
    return {
        "accuracy": clean["accuracy"],
        "clean ECE": clean["ece"],
        "micro ECE": cast("float", shifted["micro_ece"].mean()),
        "macro ECE": cast("float", shifted["macro_ece"].mean()),
    }


PARTS = {"speed": speed, "effect": effect}


def write_page(figures: dict[str, float]) -> None:
    """Put the ratio and the table into the page on cost."""
    ratio = figures[FASTER]
    lines = [
        f"{FASTER}: {ratio} (aim {GOAL}).",
        "",
        f"| digits, FALCON, {len(SEEDS)} seeds | {' | '.join(COLUMNS)} |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in FIGURES:
        mean, less, spread = (figures[f"{name}, {column}"] for column in COLUMNS)
        lines.append(f"| {name} | {mean:.4f} | {less:+.4f} | {spread:.4f} |")
    write_between("docs/cost.md", "half precision", "half_precision", "\n".join(lines))


if __name__ == "__main__":
    main()
