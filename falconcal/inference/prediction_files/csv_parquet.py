"""CSV and Parquet: one row per example, one column per class."""

from pathlib import Path

from falconcal.inference.prediction_files.columns import (
    ColumnOptions,
    Columns,
    RawPredictions,
    find_columns,
)
from falconcal.io import table_files


def read_parquet_predictions(path: Path, names: ColumnOptions) -> RawPredictions:
    """Read the columns that matter of a Parquet file."""
    chosen = find_columns(path, table_files.parquet_header(path), names)
    return _table(table_files.read_parquet_columns(path, chosen.all), chosen)


def read_csv_predictions(path: Path, names: ColumnOptions) -> RawPredictions:
    """Read the columns that matter of a CSV file, as text: what is a number is decided later."""
    chosen = find_columns(path, table_files.csv_header(path), names)
    return _table(table_files.read_csv_columns(path, chosen.all), chosen)


def _table(file: table_files.TableFile, chosen: Columns) -> RawPredictions:
    return RawPredictions(
        path=file.path,
        place=file.place,
        values=file.frame.select(chosen.values),
        labels=file.frame[chosen.labels],
        groups=file.frame[chosen.groups] if chosen.groups is not None else None,
        classes=chosen.classes,
        named=chosen.named,
    )
