"""Gas-sensor drift: 16 real sensors over 36 months, six gases, 128 numbers per measurement.

A. Vergara et al., Sensors and Actuators B 166, 2012, and I. Rodriguez-Lujan et al., 2014; UCI,
"Gas Sensor Array Drift (at Different Concentrations)", CC BY 4.0: ten batches in order of time,
``batchK.dat``, in a folder or packed. Models train on the first batches; later ones are the drift.
Every number is standardised by the training examples. UCI's pages disagree on which number is
which gas, so the classes go by their numbers.
"""

from pathlib import Path
from typing import Annotated

import numpy
import torch
from pydantic import Field

from falconcal.core.settings import Count, settings
from falconcal.data.array_cache import cached_arrays
from falconcal.data.class_folders import HeldOut
from falconcal.data.dataset import Dataset
from falconcal.data.locations import DATA, find_file, search_folders
from falconcal.data.part import Examples
from falconcal.data.sets.own_arrays import ArrayPair, with_all_parts
from falconcal.errors import UserError
from falconcal.io.packed_text import read_number_lines, read_packed_text, text_members

GAS_FOLDERS = ("gas-sensor-drift", "gas_drift", "gas-sensor-array-drift")
GAS_ARCHIVES = (
    "batches.tar.xz",
    "Dataset.zip",
    "gas+sensor+array+drift+dataset.zip",
    "gas+sensor+array+drift+dataset+at+different+concentrations.zip",
)
GASES = tuple(f"gas {number}" for number in range(1, 7))
GAS_NUMBERS = 128
LAST_BATCH = 10

BatchNumbers = Annotated[
    tuple[Annotated[int, Field(ge=1, le=LAST_BATCH)], ...], Field(strict=False, min_length=1)
]


@settings
class GasDrift:
    """Gas-sensor drift, with settings."""

    train: BatchNumbers = (1, 2)
    """The batches that training, validation and, by default, test examples come from."""

    test: BatchNumbers | None = None
    """Other batches, all of whose rows are the test part; None holds rows of ``train`` out."""

    held_out: HeldOut = 0.2
    """The share of ``train`` that is held out for validation, and as much for test."""

    path: str | None = None
    """The folder or the archive of the batches; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        pairs = with_all_parts({"train": self._rows(self.train)}, GASES, self.held_out)
        mean, deviation = pairs["train"][0].mean(0), pairs["train"][0].std(0)  # (128,)
        if self.test is not None:
            pairs["test"] = self._rows(self.test)
        scale = numpy.where(deviation > 0, deviation, 1.0)
        train, validation, test = (
            _examples((pairs[part][0] - mean) / scale, pairs[part][1])
            for part in ("train", "validation", "test")
        )
        return Dataset("gas_drift", "signal", GASES, None, train, validation, test)

    def _rows(self, numbers: tuple[int, ...]) -> ArrayPair:
        batches = [read_month_batch(number, self.path) for number in numbers]
        inputs, labels = zip(*batches, strict=True)
        return numpy.concatenate(inputs), numpy.concatenate(labels)


def read_month_batch(number: Count, path: str | None) -> ArrayPair:
    """Return the measurements (N, 128) of a batch and the numbers of their gases, from 0."""
    name, folders = f"batch{number}.dat", search_folders(GAS_FOLDERS, path)
    file = find_file(folders, (name, f"Dataset/{name}", *GAS_ARCHIVES))
    if file is None:
        looked = ", ".join(map(str, folders)) or f"no folder {' or '.join(GAS_FOLDERS)}"
        raise UserError(
            f"gas_drift: expected {name} or an archive of the batches, looked in {looked}. It is "
            "not downloaded: get UCI's Gas Sensor Array Drift, and give its folder as path or put "
            f"it into the folder that {DATA} names."
        )
    inputs, labels = cached_arrays("gas_drift", [file], lambda: _read(file, name), name)
    return inputs, labels


def _read(file: Path, name: str) -> ArrayPair:
    plain = file.suffix == ".dat"
    text = read_packed_text(file) if plain else _member(file, name)
    source = file if plain else f"{file}, {name}"
    words, inputs = read_number_lines(text, source, GAS_NUMBERS)
    # "3;10.0" in the version that has concentrations
    gases = [word.partition(";")[0] for word in words]
    strange = next((gas for gas in gases if gas not in "123456" or not gas), None)
    if strange is not None or not gases:
        raise UserError(f"{source}: expected lines of gases 1 to 6, got {strange!r}.")
    return inputs, numpy.array(gases, dtype=numpy.int64) - 1


def _member(file: Path, name: str) -> str:
    there = text_members(file, ".dat")
    if name not in there:
        raise UserError(
            f"{file}: expected {name}, it has {', '.join(sorted(there)) or 'no batch'}: choose "
            "other batches, or complete it."
        )
    return there[name]


def _examples(inputs: numpy.ndarray, labels: numpy.ndarray) -> Examples:
    return Examples(torch.from_numpy(inputs).float(), torch.from_numpy(labels), None, GASES)
