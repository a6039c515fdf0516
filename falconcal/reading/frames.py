"""CSV and Parquet: a row an example, a column a class."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import polars

from falconcal.errors import UsageError, UserError
from falconcal.reading.table import Chosen, Names, Table, choose, first_line

# polars gives up on some damaged files with a panic, which is no ordinary exception
UNREADABLE = (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError)


def read_parquet(path: Path, names: Names) -> Table:
    """Read the columns that matter of a Parquet file."""
    try:
        columns = list(polars.read_parquet_schema(path))
        chosen = choose(path, columns, names)
        frame = polars.read_parquet(path, columns=chosen.all, glob=False, hive_partitioning=False)
    except UNREADABLE as error:
        raise UserError(
            f"{path}: cannot be read as Parquet: {first_line(error)}. Is it whole, and Parquet?"
        ) from None
    return _table(path, frame, chosen, lambda row: f"row {row} (from 0)")


def read_csv(path: Path, names: Names) -> Table:
    """Read the columns that matter of a CSV file, as text: what is a number is decided later."""
    header = header_of(path)
    chosen = choose(path, header, names)
    places = sorted(header.index(name) for name in chosen.all)
    try:
        frame = polars.read_csv(
            path,
            columns=places,
            infer_schema=False,
            glob=False,
        )
    except UNREADABLE as error:
        raise UserError(what_is_wrong(path, len(header), error)) from None
    frame.columns = [header[place] for place in places]
    frame = _without_blank_end(frame.with_columns(polars.all().str.strip_chars()))
    return _table(path, frame, chosen, lambda row: f"line {_line_of(path, row)}")


def _table(
    path: Path, frame: polars.DataFrame, chosen: Chosen, place: Callable[[int], str]
) -> Table:
    groups = frame[chosen.groups] if chosen.groups is not None else None
    values = frame.select(chosen.values)
    return Table(path, values, frame[chosen.labels], groups, chosen.classes, chosen.named, place)


def header_of(path: Path) -> list[str]:
    """Return the names of a CSV file's columns; two alike are refused."""
    try:
        _, names = next(records(path), (0, []))
    except UnicodeDecodeError as error:
        raise UserError(what_is_wrong(path, 0, error)) from None
    except csv.Error as error:
        raise UserError(f"{path}, line 1: cannot be read as CSV: {first_line(error)}.") from None
    header = [name.strip() for name in names]
    if not header:
        raise UserError(f"{path}: expected a header and rows, got an empty file.")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise UsageError(
            f"{path}, line 1: expected every column to have a name of its own, got {twice[0]!r} "
            f"{header.count(twice[0])} times: rename or remove all but one."
        )
    return header


def records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV file from the header on, each with the line that it begins on."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader, begun, line = csv.reader(file), False, 1
        for record in reader:
            begun = begun or bool(record)  # blank lines before the header are no records
            if begun:
                yield line, record
            line = reader.line_num + 1


def _line_of(path: Path, row: int) -> int:
    """Return the line of the file on which a row begins: cells may hold line breaks."""
    return next(line for number, (line, _) in enumerate(records(path), start=-1) if number == row)


def _without_blank_end(frame: polars.DataFrame) -> polars.DataFrame:
    """Drop blank lines at the end of a file; anywhere else they are rows with nothing in them."""
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series()
    last = filled.arg_true().max() if len(filled) else None
    return frame.head(int(last) + 1) if isinstance(last, int) else frame.clear()


def what_is_wrong(path: Path, width: int, error: Exception) -> str:
    """Return why a CSV file cannot be read, with the line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not _decodes(line):
                return (
                    f"{path}, line {number}: expected text in UTF-8, got other bytes: convert it."
                )
    for number, record in records(path):
        if len(record) > width:
            return (
                f"{path}, line {number}: expected {width} cells, as in the header, got "
                f"{len(record)}: quote cells that hold commas."
            )
    return f"{path}: cannot be read as CSV: {first_line(error)}. Is a quote left open?"


def _decodes(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
