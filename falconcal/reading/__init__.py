"""Predictions from anybody's files: CSV, Parquet and NPZ. Nothing is guessed, all is checked."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from falconcal.errors import UsageError
from falconcal.files import as_path
from falconcal.predictions import Predictions
from falconcal.reading.arrays import read_npz
from falconcal.reading.checks import group_names, label_numbers, probability_matrix
from falconcal.reading.frames import read_csv, read_parquet
from falconcal.reading.table import Names, Table

__all__ = ["FORMATS", "PredictionFile", "read_predictions"]

FORMATS: dict[str, Callable[[Path, Names], Table]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
}


@dataclass(frozen=True, eq=False)
class PredictionFile:
    """Predictions as a file held them, with the names of their classes and of their groups."""

    path: Path
    predictions: Predictions
    classes: tuple[str, ...]  # C names, in the order of the probabilities
    groups: tuple[str, ...] | None  # N names, if a column of them was asked for


def read_predictions(
    path: str | Path,
    *,
    labels: str | None = None,
    probabilities: str | None = None,
    logits: bool = False,
    groups: str | None = None,
) -> PredictionFile:
    """Read a CSV, Parquet or NPZ file; what is wrong is named by row and column.

    In CSV and Parquet ``labels`` is a column, ``label`` unless given, and ``probabilities`` what
    the columns of the classes begin with, ``p_`` unless given, ``logit_`` for logits. In NPZ they
    are arrays, ``labels`` and ``probabilities`` or ``logits``. ``logits`` says that the numbers
    are logits: that is never guessed.
    """
    path = as_path(path)
    table = _reader(path)(path, Names(labels, probabilities, logits, groups))
    if len(table.labels) == 0:
        raise table.problem("expected at least one example, got a header and no rows.")
    values = torch.from_numpy(probability_matrix(table, logits=logits))  # (N, C)
    truth = torch.from_numpy(label_numbers(table))  # (N,)
    make = Predictions.from_logits if logits else Predictions.from_probabilities
    return PredictionFile(path, make(values, truth), table.classes, group_names(table))


def _reader(path: Path) -> Callable[[Path, Names], Table]:
    """Return what reads this kind of file, told by its ending alone."""
    if path.is_dir():
        raise UsageError(f"expected a file, got the folder {path}: name a file in it.")
    if not path.exists():
        raise UsageError(f"no such file: {path}. Check the path and the current folder.")
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"expected a file that ends in {', '.join(FORMATS)}, got {path.name!r}: convert it, or "
            "rename it if it is one of these."
        )
    return FORMATS[path.suffix.lower()]
