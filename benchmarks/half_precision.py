"""What bfloat16 brings in training VGG19, and what it costs in accuracy and calibration.

    python -m benchmarks.half_precision results/cost/half_precision.json

Speed: training steps of VGG19 on 32 x 32 images with channels last, autocast to bfloat16 against
float32, interleaved, the least of the rounds. Effect: ``vgg_small`` on CIFAR-10 trained twice from
the same seed, test accuracy and ECE of both. Some machines cannot compute in bfloat16, and trying
may break later work in the same process: each part runs in a process of its own, and where it
fails the command prints "not measurable here" and succeeds. The table goes into docs/cost.md.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import nn

from benchmarks.pages import write_between
from falconcal.core.layout import to_channels_last, weights_to_channels_last
from falconcal.data import load_dataset, subset_all_parts
from falconcal.methods import L2Dropout
from falconcal.metrics import accuracy, expected_calibration_error
from falconcal.models import VGG, make_model
from falconcal.models.predict import predict
from falconcal.training.precision import Precision

HALF: Precision = "bf16-mixed"
FULL: Precision = "32-true"
GOAL, ROUNDS, BATCH = 1.6, 5, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--examples", type=int, default=20_000, help="of CIFAR-10, for the effect")
    parser.add_argument("--epochs", type=int, default=5)
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
    for name in ("threads", "examples", "epochs"):
        command += [f"--{name}", str(getattr(arguments, name))]
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
    return {"VGG19, steps in bfloat16, times faster": round(ratio, 2)}


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


def effect(arguments: argparse.Namespace) -> dict[str, float]:
    """Return accuracy and ECE on CIFAR-10 in both precisions."""
    dataset = load_dataset("cifar10")
    small = subset_all_parts(dataset, arguments.examples)
    figures = {}
    for name, precision in (("float32", FULL), ("bfloat16", HALF)):
        model = make_model("vgg_small", small)
        training = L2Dropout(epochs=arguments.epochs, precision=precision)
        training.fit(model, small.training_batches(100, 0), small.validation.batches(500))
        predictions = predict(model, dataset.test)
        figures[f"vgg_small, {name}, accuracy"] = round(accuracy(predictions), 4)
        figures[f"vgg_small, {name}, ECE"] = round(expected_calibration_error(predictions), 4)
    return figures


PARTS = {"speed": speed, "effect": effect}


def write_page(figures: dict[str, float]) -> None:
    """Put the table into the page on cost."""
    lines = ["| what | figure | goal |", "| --- | ---: | --- |"]
    for name, value in figures.items():
        goal = f"at least {GOAL}" if "faster" in name else ""
        lines.append(f"| {name} | {value} | {goal} |")
    write_between("docs/cost.md", "half precision", "half_precision", "\n".join(lines))


if __name__ == "__main__":
    main()
