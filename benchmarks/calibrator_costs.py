"""What recalibration costs: a fit and a prediction relative to one pass over the validation data.

    python -m benchmarks.calibrator_costs results/cost/calibrators.json

Goes over all calibrators of the table of methods, each with its own defaults, after a LeNet that
was trained on digits for a few epochs; 200 validation and 1,200 training examples. CPU time of this
process, one thread, the calibrators interleaved in one run, of passes and predictions the least of
the rounds, which noise can only lengthen; three repetitions of all of it. A fit under shift holds
the judging of families that are left out. The table, medians and the spread, goes into
docs/cost.md.
"""

import argparse
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.cost_page import calibrators, write_page
from benchmarks.timing import cpu_time, repeated, write_figures
from falconcal.data import PREDICTION_BATCH_SIZE, Dataset, load_dataset
from falconcal.methods import METHODS, L2Dropout
from falconcal.models import make_model, predict
from falconcal.recalibration import Calibrator

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # a model of a few epochs may make no mistake
    figures = repeated(measured)
    print(calibrators(figures))
    if file is not None:
        write_figures(file, figures)
        write_page()


def measured() -> dict[str, float]:
    """Return fits and predictions of every calibrator relative to one pass."""
    data = load_dataset("digits")
    train = data.train.batches(100, shuffle=True)
    network = make_model("lenet", data)
    model = L2Dropout(epochs=3, dropout=0.0).fit(network, train, data.validation.batches(100))
    names = [
        name
        for name, make in METHODS.items()
        if isinstance(make, type) and issubclass(make, Calibrator)
    ]
    fits, models = {}, {"pass": model}
    for name in names:
        fits[name] = cpu_time(partial(_fit, models, name, data))
    least = _least(models, data)
    return {
        f"{name}, {what}": round(seconds / least["pass"], 2)
        for name in names
        for what, seconds in (("fit", fits[name]), ("prediction", least[name]))
    }


def _fit(models: dict[str, nn.Module], name: str, data: Dataset) -> None:
    train, validation = (
        part.batches(PREDICTION_BATCH_SIZE) for part in (data.train, data.validation)
    )
    models[name] = METHODS[name]().fit(models["pass"], train, validation)


def _least(models: dict[str, nn.Module], data: Dataset) -> dict[str, float]:
    """Return the CPU seconds of a prediction of all validation data by each model."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            times[name].append(cpu_time(partial(predict, model, data.validation)))
    return {name: min(seconds) for name, seconds in times.items()}


if __name__ == "__main__":
    main()
