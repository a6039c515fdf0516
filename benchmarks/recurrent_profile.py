"""Where the time of a recurrent network's training goes, and how fast its products are.

    python -m benchmarks.recurrent_profile results/cost/recurrent_profile.json

The profiler of torch over plain steps of the networks of ``recurrent_cost``, freed memory kept, one
thread: the share of oneDNN's fused recurrent layer and of products of matrices. Beside it the speed
of the GRU's products in training, and of the same product by itself, one per step of the sequence
and for all steps at once, which is what the processor can do. Three repetitions.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.cost_page import profiled, write_page
from benchmarks.recurrent_cost import BATCH, METHODS, NETWORKS
from benchmarks.step_cost import repeat, step_of
from benchmarks.timing import cpu_time, repeated, write_figures
from falconcal.core.freed_memory import freed_memory_kept

STEPS, PIXELS, HIDDEN = 3, 196, 250
PRODUCT, RATE = "GRU, product with the state", "billion operations per second"
PARTS = {
    "the fused recurrent layer": ("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"),
    "products of matrices": ("aten::mm", "aten::addmm"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with freed_memory_kept():
        figures = repeated(measured)
    print(profiled(figures))
    if arguments.file is not None:
        write_figures(arguments.file, figures)
        write_page()


def measured() -> dict[str, float]:
    figures: dict[str, float] = {}
    for network in NETWORKS:
        figures |= shares(network)
    return figures | products_in_training(figures["GRU, 196 pixels: share of products of matrices"])


def shares(network: str) -> dict[str, float]:
    """Return which share of the time of plain steps goes into each part."""
    make, batch = NETWORKS[network]
    torch.manual_seed(0)
    step = step_of(make(), METHODS["plain"].objectives(), batch())
    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        repeat(step, STEPS)
    times = {one.key: float(one.self_cpu_time_total) for one in profiler.key_averages()}
    total = sum(times.values())
    return {
        f"{network}: share of {part}": round(sum(times.get(name, 0) for name in names) / total, 2)
        for part, names in PARTS.items()
    }


def products_in_training(share: float) -> dict[str, float]:
    """Return the speed of a GRU's products, which take that share of a step, and by themselves."""
    make, batch = NETWORKS["GRU, 196 pixels"]
    step = step_of(make(), METHODS["plain"].objectives(), batch())
    step()
    seconds = cpu_time(partial(repeat, step, STEPS)) * share / STEPS
    # one product forward; two backward, for the state and for the weights
    rate = 3 * PIXELS * operations(BATCH) / seconds / 1e9
    return {f"{PRODUCT}, in training: {RATE}": round(rate)} | products()


def operations(rows: int) -> int:
    """Return additions and multiplications of states (rows, hidden) times (hidden, 3 hidden)."""
    return 2 * rows * HIDDEN * 3 * HIDDEN


def products() -> dict[str, float]:
    """Return billions of operations per second of a GRU's product, step by step and all at once."""
    figures: dict[str, float] = {}
    for name, rows, times in (("step by step", BATCH, PIXELS), ("at once", BATCH * PIXELS, 1)):
        multiply = partial(torch.mm, torch.randn(rows, HIDDEN), torch.randn(HIDDEN, 3 * HIDDEN))
        multiply()  # makes room
        seconds = cpu_time(partial(repeat, multiply, times))
        rate = operations(rows) * times / seconds / 1e9
        figures[f"{PRODUCT}, {name}: {RATE}"] = round(rate)
    return figures


if __name__ == "__main__":
    main()
