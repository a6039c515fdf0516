"""Networks that others trained on CIFAR-10, and what can be done for them without training.

    python -m benchmarks.pretrained_networks resnet20 runs/pretrained/resnet20
    python -m benchmarks.pretrained_networks resnet20

The published ResNet-20 and ResNet-56 were trained on all training images of CIFAR-10, so the test
images are divided in halves: calibrators are fitted on one and tested on the other, and then the
halves are exchanged. One forward pass serves all calibrators. Every shift of every half is kept in
the folder when it is measured, so that an interrupted command goes on; at the end rows and
intervals are kept in ``results/promise/NAME``, and the page ``docs/results/promise_NAME.md`` is
written, from what is kept where no folder is given.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import torch
from torch import nn

from benchmarks.pages import PAGES
from benchmarks.promise import CORRUPTIONS
from benchmarks.promise_networks import KEPT, METRICS, page, scored_intervals
from falconcal import (
    DensityAware,
    EnsembleTemperature,
    HistogramBinning,
    Isotonic,
    OneCurveIsotonic,
    ParameterisedTemperature,
    ScalingBinning,
    ShiftTemperature,
    Temperature,
    VectorScaling,
    load_dataset,
    make_model,
)
from falconcal.data import PREDICTION_BATCH_SIZE, Dataset, Part
from falconcal.data.locations import data_folder
from falconcal.data.subsets import select
from falconcal.evaluation import score_together, scores_to_rows
from falconcal.evaluation.score_rows import scores_by_level
from falconcal.recalibration import Calibrator
from falconcal.shifts import Shift, affine_shifts

WEIGHTS = {
    "resnet20": "resnet20-12fca82f.safetensors",
    "resnet56": "resnet56-4bfd9763.safetensors",
}
CALIBRATORS: dict[str, Calibrator] = {
    "temperature": Temperature(),
    "ladder_temperature": Temperature(perturbed="crafted"),
    "shift_temperature": ShiftTemperature(),
    "shift_temperature_without_swirl": ShiftTemperature(leave_out=("swirl",)),
    "vector": VectorScaling(),
    "isotonic": Isotonic(),
    "histogram_binning": HistogramBinning(),
    "scaling_binning": ScalingBinning(),
    "ensemble_temperature": EnsembleTemperature(),
    "one_curve_isotonic": OneCurveIsotonic(),
    "parameterised_temperature": ParameterisedTemperature(),
    "density_aware": DensityAware(),
    "density_aware_nearest": DensityAware(distance="nearest_squared"),
    "ladder_ensemble_temperature": EnsembleTemperature(perturbed="crafted", check_families=False),
    "ladder_parameterised_temperature": ParameterisedTemperature(
        perturbed="crafted", check_families=False
    ),
    "ladder_density_aware": DensityAware(perturbed="crafted", check_families=False),
}
RAW = "raw"
SHIFTS: list[Shift] = [*affine_shifts("middle").values(), *CORRUPTIONS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=WEIGHTS)
    parser.add_argument("folder", type=Path, nargs="?", help="where scores are kept meanwhile")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        torch.set_num_threads(1)
        measure(arguments.name, arguments.folder)
        keep(arguments.name, arguments.folder)
    (PAGES / f"promise_{arguments.name}.md").write_text(page(arguments.name))


def measure(name: str, folder: Path) -> None:
    """Score all calibrators under every shift, on each half; what is there is not done again."""
    dataset = load_dataset("cifar10")
    for half in (0, 1):
        wanted = [None, *SHIFTS]
        left = [shift for shift in wanted if not file_of(folder, half, shift).exists()]
        if not left:
            continue
        models = fitted(network(name, dataset), dataset, half)
        test = every_second(dataset.test, half)
        for shift in left:
            store(folder, half, shift, models, test)


def network(name: str, dataset: Dataset) -> nn.Module:
    """Return the network with its published weights."""
    folder = data_folder()
    assert folder is not None, "the weights are in the folder that FALCONCAL_DATA names"
    file = folder / "cifar-10-resnets" / WEIGHTS[name]
    return make_model(name, dataset, weights=file).eval()


def fitted(model: nn.Module, dataset: Dataset, half: int) -> dict[str, nn.Module]:
    """Return the network as it is and calibrated on the other half of the test images."""
    train = dataset.train.batches(PREDICTION_BATCH_SIZE)
    validation = every_second(dataset.test, 1 - half).batches(PREDICTION_BATCH_SIZE)
    calibrated = {name: one.fit(model, train, validation) for name, one in CALIBRATORS.items()}
    return {RAW: model, **calibrated}


def every_second(part: Part, first: int) -> Part:
    return select(part, torch.arange(first, len(part), 2))


def store(
    folder: Path, half: int, shift: Shift | None, models: dict[str, nn.Module], test: Part
) -> None:
    """Score the models under a shift, or on clean data, and write the scores."""
    shifts = [] if shift is None else [shift]
    scores = score_together(models, test, shifts, clean=shift is None)
    named = [table.with_columns(method=polars.lit(name)) for name, table in scores.items()]
    file = file_of(folder, half, shift)
    file.parent.mkdir(parents=True, exist_ok=True)
    polars.concat(named).write_parquet(file.with_suffix(".part"), compression="zstd")
    file.with_suffix(".part").rename(file)  # a file that is there is whole
    print(half, file.stem, flush=True)


def file_of(folder: Path, half: int, shift: Shift | None) -> Path:
    return folder / f"half-{half}" / f"{'clean' if shift is None else shift.name}.parquet"


def keep(name: str, folder: Path) -> None:
    """Keep rows, intervals and the calibrators' settings."""
    kept = KEPT / name
    kept.mkdir(parents=True, exist_ok=True)
    tables = [rows_of(folder, half, method) for half in (0, 1) for method in (RAW, *CALIBRATORS)]
    polars.concat(tables).write_parquet(kept / "rows.parquet", compression="zstd")
    readers = {
        method: [reader(folder, half, method) for half in (0, 1)] for method in (RAW, *CALIBRATORS)
    }
    intervals = scored_intervals(readers, "shift_temperature")
    evidence = {"intervals": intervals, "examples": len(load_dataset("cifar10").test)}
    (kept / "evidence.json").write_text(json.dumps(evidence, indent=1) + "\n")


def rows_of(folder: Path, half: int, method: str) -> polars.DataFrame:
    """Return the rows of a method on a half; the half stands where a seed does."""
    files = sorted((folder / f"half-{half}").glob("*.parquet"))
    scores = polars.concat(
        [polars.read_parquet(file).filter(method=method).drop("method") for file in files]
    )
    rows = scores_to_rows(scores).filter(polars.col("metric").is_in(METRICS))
    named = rows.with_columns(method=polars.lit(method), seed=polars.lit(half))
    return named.select("method", "seed", "shift", "level", "metric", "value")


def reader(folder: Path, half: int, method: str) -> Callable[[str], dict[int, Any]]:
    """Return a function that reads the scores of a shift by level."""

    def read(shift: str) -> dict[int, Any]:
        table = polars.read_parquet(folder / f"half-{half}" / f"{shift}.parquet")
        return scores_by_level(table.filter(method=method).drop("method").sort("level", "example"))

    return read


if __name__ == "__main__":
    main()
