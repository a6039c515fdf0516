"""What a prediction by MC dropout costs, against one pass of the same network.

    python -m benchmarks.sampling_cost results/cost/sampling.json

LeNet on 28x28 and VGG19 on 32x32, 50 samples, batches of 100 and of 500 (VGG19: 32); beside it the
same draws by 50 passes, one after another. CPU time of this process, one thread, the kinds
interleaved in one run, the least of the rounds, which noise can only lengthen; three repetitions of
all of it. The table, medians and the spread, goes into docs/cost.md.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.cost_page import sampling, write_page
from benchmarks.timing import cpu_time, repeated, write_figures
from falconcal.core.layout import to_channels_last, weights_to_channels_last
from falconcal.methods import MCDropout
from falconcal.models import VGG, LeNet

SAMPLES = 50
# network, images, how often it is timed
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "LeNet, 100 images": (LeNet, (100, 1, 28, 28), 15),
    "LeNet, 500 images": (LeNet, (500, 1, 28, 28), 5),
    "VGG19, 32 images": (VGG, (32, 3, 32, 32), 3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    figures = repeated(measured)
    print(sampling(figures))
    if file is not None:
        write_figures(file, figures)
        write_page()


def measured() -> dict[str, float]:
    return {
        f"{name}, {kind}": value
        for name, case in CASES.items()
        for kind, value in ratios(*case).items()
    }


def ratios(make: Callable[[], nn.Module], shape: tuple[int, ...], rounds: int) -> dict[str, float]:
    """Return CPU time relative to one pass: sampled at once, and pass by pass."""
    torch.manual_seed(0)
    network, inputs = make(), to_channels_last(torch.rand(shape))
    weights_to_channels_last(network)
    sampled, apart = (MCDropout(samples=SAMPLES).build(network).eval() for _ in range(2))
    with torch.no_grad():
        sampled(inputs)  # where rows are multiplied is found out once
        apart.branch_points = dict.fromkeys(sampled.branch_points)  # type: ignore[arg-type,assignment]
        kinds = {"one pass": network, "sampled": sampled, "pass by pass": apart}
        least = timed(kinds, inputs, rounds)
    one = least.pop("one pass")
    return {kind: round(seconds / one, 2) for kind, seconds in least.items()}


def timed(kinds: dict[str, nn.Module], inputs: Tensor, rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind, model in kinds.items():
            # fifty passes need no repetition to be told from the noise
            if kind != "pass by pass" or number == 0:
                times[kind].append(cpu_time(partial(model, inputs)))
    return {kind: min(seconds) for kind, seconds in times.items()}


if __name__ == "__main__":
    main()
