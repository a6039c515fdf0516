"""Elec2: electricity prices of New South Wales, 45,312 half-hours from 1996 to 1998 in order.

M. Harries, "SPLICE-2 comparative evaluation: Electricity pricing", 1999, as normalised for MOA:
``elecNormNew.arff`` or ``.csv``, or a CSV of the six columns and the class, also packed. Will the
price be above that of the last day? Models train on the first part of the time; later ones are the
drift. Three of the columns stand still until May 1997, then the market of Victoria joins.
"""

from pathlib import Path
from typing import Annotated

import numpy
import torch
from pydantic import Field

from falconcal.core.settings import Fraction, settings
from falconcal.data.array_cache import cached_arrays
from falconcal.data.bounds import Bounds
from falconcal.data.dataset import Dataset
from falconcal.data.locations import require_file
from falconcal.data.part import Examples
from falconcal.data.sets.own_arrays import ArrayPair
from falconcal.errors import UsageError, UserError
from falconcal.io.packed_text import read_packed_text

ELEC2_FOLDERS = ("elec2", "electricity", "elec")
ELEC2_FILES = (
    "elec.csv.xz", "elec.csv", "elecNormNew.csv", "elecNormNew.arff", "electricity-normalized.arff",
    "electricity.csv",
)  # fmt: skip
ELEC2_ORIGIN = "OpenML's data 151 (electricity-normalized.arff), or MOA's elecNormNew"
ELEC2_COLUMNS = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
PRICE_DIRECTIONS = ("down", "up")
WRITTEN = {"0": 0, "DOWN": 0, "FALSE": 0, "1": 1, "UP": 1, "TRUE": 1}
DAY = 48  # half-hours
HELD_DAYS = 5  # of every five days three train, one validates and one tests

Span = Annotated[tuple[Fraction, Fraction], Field(strict=False)]


@settings
class Elec2:
    """Electricity prices in order of time, with settings."""

    train: Span = (0.0, 0.3)
    """Which part of the time, as fractions, training and validation days come from, and by default
    the test days too."""

    test: Span | None = None
    """Another part of the time, all of whose half-hours are the test part; None holds out every
    fifth day of ``train``."""

    path: str | None = None
    """The folder of the file; by default it is looked for where data is kept."""

    def __post_init__(self) -> None:
        for span in (self.train, self.test or self.train):
            if span[0] >= span[1]:
                raise UsageError(f"elec2: expected a span as [0.3, 0.4], got {list(span)}.")

    def load(self) -> Dataset:
        file = require_file("elec2", ELEC2_FOLDERS, ELEC2_FILES, self.path, ELEC2_ORIGIN)
        inputs, labels = cached_arrays("elec2", [file], lambda: read_elec2(file))
        days = numpy.arange(len(labels)) // DAY  # (N,)
        own = in_span(days, self.train)
        turn = days % HELD_DAYS
        which = [own & (turn < 3), own & (turn == 3), own & (turn == 4)]
        if self.test is not None:
            which[2] = in_span(days, self.test)
        train, validation, test = (_examples(inputs[rows], labels[rows]) for rows in which)
        return Dataset(
            "elec2", "signal", PRICE_DIRECTIONS, Bounds(0.0, 1.0), train, validation, test
        )


def in_span(days: numpy.ndarray, span: tuple[float, float]) -> numpy.ndarray:
    """Return which half-hours are of the days of a span, (N,)."""
    first, end = (round(share * (int(days[-1]) + 1)) for share in span)
    return (days >= first) & (days < end)


def read_elec2(file: Path) -> ArrayPair:
    """Return the six columns (N, 6), 0 to 1, and the classes (N,) of a CSV or ARFF file."""
    names, first, lines = _header(read_packed_text(file).splitlines())
    missing = [name for name in (*ELEC2_COLUMNS, "class") if name not in names]
    if missing:
        raise UserError(f"{file}: expected the columns {', '.join(missing)}, got {names}.")
    rows = [line.replace("'", "").split(",") for line in lines if line.strip()]
    places, label = [names.index(name) for name in ELEC2_COLUMNS], names.index("class")
    number = 0
    try:
        inputs = numpy.empty((len(rows), len(places)))
        labels = numpy.empty(len(rows), dtype=numpy.int64)
        for number, cells in enumerate(rows):
            inputs[number] = [float(cells[place]) for place in places]
            labels[number] = WRITTEN[cells[label].strip().upper()]
    except (ValueError, KeyError, IndexError) as error:
        raise UserError(
            f"{file}, line {first + number}: expected numbers, then UP or DOWN, or 1 or 0: {error}."
        ) from None
    return inputs, labels


def _header(lines: list[str]) -> tuple[list[str], int, list[str]]:
    """Return the names of the columns, the number of the first row's line, and the rows."""
    if not any(line.lower().startswith("@data") for line in lines):
        header = lines[0] if lines else ""
        return [name.strip() for name in header.split(",")], 2, lines[1:]
    start = next(n for n, line in enumerate(lines) if line.lower().startswith("@data"))
    stated = [line.split() for line in lines[:start] if line.lower().startswith("@attribute")]
    return [words[1].strip("'\"") for words in stated], start + 2, lines[start + 1 :]


def _examples(inputs: numpy.ndarray, labels: numpy.ndarray) -> Examples:
    values = torch.from_numpy(inputs).float()
    return Examples(values, torch.from_numpy(labels), Bounds(0.0, 1.0), PRICE_DIRECTIONS)
