"""Predictions from files of other tools: CSV, Parquet and NPZ. Nothing is guessed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from falconcal.errors import UsageError
from falconcal.inference.prediction_files.columns import ColumnOptions, RawPredictions
from falconcal.inference.prediction_files.csv_parquet import (
    read_csv_predictions,
    read_parquet_predictions,
)
from falconcal.inference.prediction_files.npz import read_npz
from falconcal.inference.prediction_files.probability_checks import (
    group_names,
    label_numbers,
    probability_matrix,
)
from falconcal.io.atomic import as_path
from falconcal.metrics.predictions import Predictions

__all__ = ["PREDICTION_FORMATS", "PredictionFile", "read_predictions"]

PREDICTION_FORMATS: dict[str, Callable[[Path, ColumnOptions], RawPredictions]] = {
    ".csv": read_csv_predictions,
    ".parquet": read_parquet_predictions,
    ".npz": read_npz,
}


@dataclass(frozen=True, eq=False)
class PredictionFile:
    r"""Predictions that were read from a file, with the names of classes and groups.

    Args:
        path: The file.
        predictions: The N predictions.
        classes: The names of the C classes, in the order of the probabilities.
        groups: The name of each example's group, (N,), if a column of groups was asked for.

    Example:
        >>> import pathlib, falconcal
        >>> table = "label,p_cat,p_dog\ncat,0.9,0.1\ndog,0.2,0.8\n"
        >>> _ = pathlib.Path("predictions.csv").write_text(table)
        >>> falconcal.read_predictions("predictions.csv").classes
        ('cat', 'dog')
    """

    path: Path
    predictions: Predictions
    classes: tuple[str, ...]
    groups: tuple[str, ...] | None


def read_predictions(
    path: str | Path,
    *,
    labels: str | None = None,
    probabilities: str | None = None,
    logits: bool = False,
    groups: str | None = None,
) -> PredictionFile:
    r"""Read predictions from a CSV, Parquet or NPZ file; the extension gives the format.

    Args:
        path: The file.
        labels: The column of the labels, ``label`` by default; in NPZ an array, ``labels``.
        probabilities: What the columns of the classes begin with, ``p_`` by default, ``logit_``
            for logits; in NPZ an array (N, C), ``probabilities`` or ``logits``.
        logits: Whether the numbers are logits; that is never guessed.
        groups: The column, or array, of each example's group.

    Returns:
        The predictions with the names of classes and groups.

    Raises:
        UsageError: The file, a column or an array is not there.
        UserError: A value is wrong; the message names its row and column.

    Example:
        >>> import pathlib, falconcal
        >>> table = "label,p_0,p_1\n0,0.9,0.1\n1,0.8,0.2\n"
        >>> _ = pathlib.Path("predictions.csv").write_text(table)
        >>> falconcal.accuracy(falconcal.read_predictions("predictions.csv").predictions)
        0.5
    """
    path = as_path(path)
    table = _reader(path)(path, ColumnOptions(labels, probabilities, logits, groups))
    if len(table.labels) == 0:
        raise table.problem("expected at least one example, got a header and no rows.")
    values = torch.from_numpy(probability_matrix(table, logits=logits))  # (N, C)
    truth = torch.from_numpy(label_numbers(table))  # (N,)
    make = Predictions.from_logits if logits else Predictions.from_probabilities
    return PredictionFile(path, make(values, truth), table.classes, group_names(table))


def _reader(path: Path) -> Callable[[Path, ColumnOptions], RawPredictions]:
    """Return the reader for a file, by its extension."""
    if path.is_dir():
        raise UsageError(f"expected a file, got the folder {path}: name a file in it.")
    if not path.exists():
        raise UsageError(f"no such file: {path}. Check the path and the current folder.")
    if path.suffix.lower() not in PREDICTION_FORMATS:
        raise UsageError(
            f"expected a file that ends in {', '.join(PREDICTION_FORMATS)}, got {path.name!r}: "
            "convert it, or rename it if it is one of these."
        )
    return PREDICTION_FORMATS[path.suffix.lower()]
