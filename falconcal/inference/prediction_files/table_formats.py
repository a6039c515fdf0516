"""CSV, Parquet and JSON tables: one row per example, columns by name."""

from functools import partial
from pathlib import Path
from typing import Any

import polars

from falconcal.errors import UserError
from falconcal.inference.prediction_files.open_table import OpenTable
from falconcal.io import table_files
from falconcal.io.parsing import parse_json
from falconcal.io.regular_files import check_memory, check_regular, error_line
from falconcal.io.table_files import TableFile

JSON_GROWTH = 20  # bytes of memory per byte of text, while it is parsed


def open_csv_table(path: Path, *, header: bool) -> OpenTable:
    """Open a CSV file, whose cells are text: what is a number is decided later."""
    columns = table_files.csv_header(path, named=header)
    read = partial(table_files.read_csv_columns, path, named=header)
    return OpenTable(path, tuple(columns), read)


def open_parquet_table(path: Path, *, header: bool) -> OpenTable:  # noqa: ARG001 - always named
    """Open a Parquet file."""
    columns = table_files.parquet_header(path)
    return OpenTable(path, tuple(columns), partial(table_files.read_parquet_columns, path))


def open_json_table(path: Path, *, header: bool) -> OpenTable:  # noqa: ARG001 - always named
    """Open a table in the layout of ``pandas.DataFrame.to_json(orient="split")``.

    MLflow's tables of an evaluation have that layout.
    """
    frame = _json_frame(path, _json_value(path))
    file = TableFile(path, lambda row: f"row {row} (from 0)", frame)
    return OpenTable(
        path,
        tuple(frame.columns),
        lambda names: TableFile(path, file.place, frame.select(list(names))),
    )


def _json_value(path: Path) -> Any:
    check_regular(path)
    try:
        check_memory(str(path), JSON_GROWTH * path.stat().st_size)
        return parse_json(path.read_text(encoding="utf-8-sig"))
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read as JSON: {error_line(error)}. Is it complete?"
        ) from None


def _json_frame(path: Path, value: Any) -> polars.DataFrame:
    lists = [value.get("columns"), value.get("data")] if isinstance(value, dict) else [None]
    if not all(isinstance(one, list) for one in lists):
        raise UserError(
            f"{path}: expected a table with 'columns' and 'data', as pandas writes it with "
            "orient='split', got other JSON."
        )
    names, rows = [str(name) for name in value["columns"]], value["data"]
    if len(set(names)) < len(names) or any(
        not isinstance(row, list) or len(row) != len(names) for row in rows
    ):
        raise UserError(
            f"{path}: expected different names in 'columns' and as many cells in each row of "
            "'data', got others."
        )
    return polars.DataFrame(
        {name: _series(path, name, [row[number] for row in rows]) for number, name in
         enumerate(names)}
    )  # fmt: skip


def _series(path: Path, name: str, cells: list[Any]) -> polars.Series:
    """Return a column; cells of several types become text, as in CSV, but no table within one."""
    if any(isinstance(cell, dict | list) for cell in cells):
        return polars.Series(name, [None] * len(cells), dtype=polars.Null)
    try:
        return polars.Series(name, cells)
    except (TypeError, OverflowError, polars.exceptions.PolarsError):
        pass
    try:
        return polars.Series(name, [None if cell is None else str(cell) for cell in cells])
    except (ValueError, polars.exceptions.PolarsError):
        raise UserError(f"{path}, column {name!r}: expected text that UTF-8 can hold.") from None
