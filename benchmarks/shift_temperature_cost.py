"""What shift temperature costs: a fit, and a prediction against the bare network.

    python -m benchmarks.shift_temperature_cost results/cost/shift_temperature.json

LeNet on 28x28 and a ResNet of 20 layers on 32x32, batches of 100, with 250 to 2,000 stored
examples. CPU time of this process, one thread, the kinds interleaved in one run, the least of the
rounds, which noise can only lengthen; three repetitions of all of it. The fit is that of a LeNet on
as many validation examples and families as by default. The table, medians and the spread, goes
into docs/cost.md.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.pages import table, write_between
from benchmarks.timing import Figures, cpu_time, repeated, shown, write_figures
from falconcal.core.layout import to_channels_last, weights_to_channels_last
from falconcal.data import Bounds, Examples
from falconcal.models import LeNet, ResNet
from falconcal.recalibration import ShiftTemperature

STORED = (250, 500, 1000, 2000)
# network, shape of an image, how often it is timed
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "LeNet": (LeNet, (1, 28, 28), 15),
    "ResNet-20": (partial(ResNet, 10, 3, (3, 3, 3), 16, "basic", "small"), (3, 32, 32), 5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # random networks know nothing, and falconcal says so
    figures = repeated(measured)
    print(page(figures))
    if file is not None:
        write_figures(file, figures)
        write_between("docs/cost.md", "shift temperature", "shift_temperature_cost", page(figures))


def page(figures: Figures) -> str:
    return table(("what", "figure"), [(name, shown(values)) for name, values in figures.items()])


def measured() -> dict[str, float]:
    found = {}
    for name, (make, shape, rounds) in CASES.items():
        for stored, ratio in ratios(make, shape, rounds).items():
            found[f"prediction, {name}, {stored} stored: times the bare network"] = ratio
    seconds = cpu_time(lambda: fitted(LeNet(), (1, 28, 28), 2000, quick=False))
    found["fit, LeNet, 1,000 validation examples: CPU seconds"] = round(seconds, 1)
    return found


def ratios(make: Callable[[], nn.Module], shape: tuple[int, ...], rounds: int) -> dict[int, float]:
    """Return CPU time of a prediction relative to the bare network, by stored examples."""
    torch.manual_seed(0)
    network, inputs = make(), to_channels_last(torch.rand(100, *shape))
    weights_to_channels_last(network)
    network.eval()
    models: dict[int, nn.Module] = {0: network}
    models |= {stored: fitted(network, shape, stored) for stored in STORED}
    times: dict[int, list[float]] = {stored: [] for stored in models}
    with torch.no_grad():
        for _ in range(rounds):
            for stored, model in models.items():
                times[stored].append(cpu_time(partial(model, inputs)))
    least = {stored: min(seconds) for stored, seconds in times.items()}
    return {stored: round(least[stored] / least[0], 2) for stored in STORED}


def fitted(
    network: nn.Module, shape: tuple[int, ...], stored: int, quick: bool = True
) -> nn.Module:
    """Return the network with shift temperature, fitted on random images."""
    train, validation = random_images(stored, shape), random_images(100 if quick else 1000, shape)
    changes = {"perturbed": {"contrast": (0.5,)}, "check_families": False} if quick else {}
    method = ShiftTemperature(stored=stored, **changes)  # type: ignore[arg-type]
    return method.fit(network, train.batches(200), validation.batches(200))


def random_images(count: int, shape: tuple[int, ...]) -> Examples:
    generator = torch.Generator().manual_seed(count)
    images: Tensor = torch.rand(count, *shape, generator=generator)
    return Examples(images, torch.arange(count) % 10, Bounds(0.0, 1.0))


if __name__ == "__main__":
    main()
