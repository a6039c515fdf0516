"""What each method costs: a training step and a prediction on LeNet relative to dropout's.

    python -m benchmarks.method_costs results/cost/methods.json

Goes over the table of methods, each with its own defaults. Batches of 100 images of 28x28, one
thread, CPU time of this process, the methods interleaved in one run, the least of the rounds, which
noise can only lengthen; three repetitions of all of it. A step is timed through ``fit``, as a
training of a few batches less one of a single batch, so it holds whatever a method does with a
batch: all networks, all members of an ensemble. A prediction is one by the module that ``fit``
returned. Recalibration takes no steps of its own; it is timed after dropout. What another command
measures is not measured again here. The table, medians and the spread, goes into docs/cost.md.
"""

import argparse
import dataclasses
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.cost_page import ELSEWHERE, methods, write_page
from benchmarks.timing import cpu_time, repeated, write_figures
from falconcal.core.method import Method
from falconcal.data import Bounds, Examples
from falconcal.methods import METHODS
from falconcal.models import LeNet
from falconcal.models.predict import predict
from falconcal.recalibration.calibrator import Calibrator

BATCH, ROUNDS, SHORT, LONG = 100, 5, 1, 5  # the last two: batches of a training
DATA = Examples(
    torch.rand(BATCH * LONG, 1, 28, 28, generator=torch.Generator().manual_seed(0)),
    torch.arange(BATCH * LONG) % 10,
    Bounds(0.0, 1.0),
)
ONE_EPOCH = {"epochs": 1, "accelerator": "cpu"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # a few steps teach nothing, and falconcal says so
    figures = repeated(measured)
    print(methods(figures))
    if file is not None:
        write_figures(file, figures)
        write_page()


def measured() -> dict[str, float]:
    """Return steps and predictions relative to dropout's, except those kept in another file."""
    timed = {name: Timed(made(name)) for name in METHODS}
    for _ in range(ROUNDS):
        for method in timed.values():
            method.time()
    found = ratios(timed)
    return {name: value for name, value in found.items() if name not in ELSEWHERE}


def made(name: str) -> Method:
    """Return a method of the table with its defaults, for one epoch."""
    if "epochs" in {field.name for field in dataclasses.fields(METHODS[name])}:  # type: ignore[arg-type]
        return METHODS[name](**ONE_EPOCH)
    base = getattr(METHODS[name](), "base", None)
    return METHODS[name](base=(type(base) if base else METHODS["dropout"])(**ONE_EPOCH))


class Timed:
    """A method, fitted once, and how long it took in each round."""

    def __init__(self, method: Method) -> None:
        self.method, self.model = method, fit(method, LONG)
        self.times: dict[str, list[float]] = {"short": [], "long": [], "prediction": []}
        predict(self.model, DATA.first(BATCH))  # what is found out once is found

    def time(self) -> None:
        if not isinstance(self.method, Calibrator):
            self.times["short"].append(cpu_time(partial(fit, self.method, SHORT)))
            self.times["long"].append(cpu_time(partial(fit, self.method, LONG)))
        self.times["prediction"].append(cpu_time(partial(predict, self.model, DATA.first(BATCH))))

    def least(self) -> dict[str, float]:
        least = {name: min(times) for name, times in self.times.items() if times}
        found = {"prediction": least["prediction"]}
        if "long" in least:
            found["step"] = (least["long"] - least["short"]) / (LONG - SHORT)
        return found


def fit(method: Method, batches: int) -> nn.Module:
    torch.manual_seed(0)
    train = DATA.first(batches * BATCH).batches(BATCH)
    return method.fit(LeNet(), train, DATA.first(BATCH).batches(BATCH))


def ratios(timed: dict[str, Timed]) -> dict[str, float]:
    plain = timed["dropout"].least()
    return {
        f"{name}, {what}": round(value / plain[what], 2)
        for name, method in timed.items()
        for what, value in method.least().items()
    }


if __name__ == "__main__":
    main()
