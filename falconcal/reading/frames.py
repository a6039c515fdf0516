"""CSV and Parquet: one row per example, one column per class."""

from pathlib import Path

from falconcal.io import tables
from falconcal.reading.table import Chosen, Names, Table, choose


def read_parquet(path: Path, names: Names) -> Table:
    """Read the columns that matter of a Parquet file."""
    chosen = choose(path, tables.parquet_header(path), names)
    return _table(tables.read_parquet(path, chosen.all), chosen)


def read_csv(path: Path, names: Names) -> Table:
    """Read the columns that matter of a CSV file, as text: what is a number is decided later."""
    chosen = choose(path, tables.csv_header(path), names)
    return _table(tables.read_csv(path, chosen.all), chosen)


def _table(file: tables.TableFile, chosen: Chosen) -> Table:
    return Table(
        path=file.path,
        place=file.place,
        values=file.frame.select(chosen.values),
        labels=file.frame[chosen.labels],
        groups=file.frame[chosen.groups] if chosen.groups is not None else None,
        classes=chosen.classes,
        named=chosen.named,
    )
