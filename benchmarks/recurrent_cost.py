"""What a recurrent network costs in training, before and after what makes it cheaper.

    python -m benchmarks.recurrent_cost results/cost/recurrent.json

CPU seconds per 1,000 training examples at batch 100 on one thread, steps as the loop takes them:
an LSTM of 130 and a GRU of 250 over images of 14 x 14, an LSTM of 130 over 300 words, plain and
FALCON. Three ways: freed memory goes back to the system (``reuse_memory=False``), it is kept, and
bfloat16 beside that, where the processor has it. Each figure comes from a process of its own, since
what is done with freed memory holds for a whole process; the ways are interleaved, three
repetitions of all. Beside it the most memory that such a process held. The table goes into
docs/cost.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.cost_page import recurrent, write_page
from benchmarks.step_cost import kilobytes, repeat, step_of
from benchmarks.timing import cpu_time, repeated, write_figures
from falconcal.core.freed_memory import freed_memory_kept
from falconcal.methods import Falcon, L2Dropout
from falconcal.models import PixelRecurrent, TextRecurrent
from falconcal.training.precision import Precision, bfloat16_works

BATCH, STEPS = 100, 8
METHODS: dict[str, L2Dropout | Falcon] = {"plain": L2Dropout(), "FALCON": Falcon()}
WAYS: dict[str, tuple[bool, Precision]] = {  # whether freed memory is kept, and the precision
    "given back": (False, "32-true"),
    "kept": (True, "32-true"),
    "kept, bfloat16": (True, "bf16-mixed"),
}


def images() -> torch.Tensor:
    return torch.rand(BATCH, 1, 14, 14)


def words() -> torch.Tensor:
    return torch.randint(1, 5000, (BATCH, 300))


def word_network() -> nn.Module:
    return TextRecurrent(20, torch.randn(5000, 100), 300)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "LSTM, 196 pixels": (PixelRecurrent, images),
    "GRU, 196 pixels": (partial(PixelRecurrent, kind="gru", hidden=250), images),
    "LSTM, 300 words": (word_network, words),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    parser.add_argument("--one", nargs=2, metavar=("NETWORK", "WAY"), help="only print its figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.one is not None:
        print(json.dumps(of_one_way(*arguments.one)))
        return
    figures = repeated(measured)
    print(recurrent(figures))
    if arguments.file is not None:
        write_figures(arguments.file, figures)
        write_page()


def measured() -> dict[str, float]:
    """Return the figures of all networks and ways, each from a process of its own."""
    figures: dict[str, float] = {}
    for network in NETWORKS:
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.recurrent_cost", "--one", network, way]
            if WAYS[way][1] == "32-true" or bfloat16_works():
                answer = subprocess.run(command, capture_output=True, check=True, text=True)
                figures |= json.loads(answer.stdout.splitlines()[-1])
    return figures


def of_one_way(network: str, way: str) -> dict[str, float]:
    """Return seconds per 1,000 examples of each method, and the most memory in megabytes."""
    keep, precision = WAYS[way]
    make, batch = NETWORKS[network]
    figures = {}
    with freed_memory_kept(keep):
        for name, method in METHODS.items():
            torch.manual_seed(0)
            step = step_of(make(), method.objectives(), batch(), precision)
            step()  # makes room
            seconds = cpu_time(partial(repeat, step, STEPS))
            figures[f"{network}, {name}, {way}"] = round(seconds * 1000 / (BATCH * STEPS), 2)
    figures[f"{network}, memory, {way}"] = kilobytes("VmHWM") // 1024
    return figures


if __name__ == "__main__":
    main()
