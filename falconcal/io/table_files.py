"""CSV and Parquet: columns by name, one row per example. What is wrong is named by its place."""

import csv
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy
import polars

from falconcal.errors import UsageError, UserError
from falconcal.io.regular_files import check_regular, error_line

# polars gives up on some damaged files with a panic, which is not an ordinary exception
UNREADABLE = (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError, MemoryError)
LONGEST = csv.field_size_limit()  # characters of a cell; one quote left open makes a longer one
SHOWN = 60  # characters of a cell, in a message

Record = tuple[int, list[str]]  # the line it begins on, its cells


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a file, which messages name by their place."""

    path: Path
    place: Callable[[int], str]  # the number of a row, from 0, as its reader would look for it

    def problem(self, words: str, row: int | None = None, column: str | None = None) -> UserError:
        """Return the error that names the file, the row and the column."""
        row_words = self.place(row) if row is not None else None
        column_words = f"column {column!r}" if column is not None else None
        return UserError(
            ", ".join(filter(None, [str(self.path), row_words, column_words])) + f": {words}"
        )

    def check_filled(self, column: polars.Series) -> None:
        """Refuse a cell with nothing in it."""
        empty = column.is_null()
        if column.dtype == polars.String:
            empty = empty | (column == "")
        if column.dtype.is_float():
            empty = empty | column.is_nan()
        if empty.any():
            row = int(empty.arg_true()[0])
            came = "an empty cell" if column[row] in (None, "") else "NaN"
            raise self.problem(
                f"expected a value, got {came}: fill it or leave the row out.", row, column.name
            )

    def numbers(self, column: polars.Series) -> numpy.ndarray:
        """Return a column as float64, (N,); text that is not a number is refused."""
        self.check_filled(column)
        if not (column.dtype.is_numeric() or column.dtype == polars.String):
            raise self.problem(f"expected numbers, got {column.dtype}.", column=column.name)
        numbers = column.cast(polars.Float64, strict=False)
        if numbers.null_count():
            row = int(numbers.is_null().arg_true()[0])
            raise self.problem(
                f"expected a number, got {shown(column[row])}: every cell of the column must be "
                "one, with a point for the decimals.",
                row,
                column.name,
            )
        self.check_filled(numbers)  # text may say NaN
        return numbers.to_numpy()


@dataclass(frozen=True, eq=False)
class TableFile(Rows):
    """Columns of a file as they came, not yet checked."""

    frame: polars.DataFrame  # N rows


def shown(cell: object) -> str:
    """Return a cell as a message shows it, cut if it is long."""
    if isinstance(cell, str) and len(cell) > SHOWN:
        return f"{cell[:SHOWN]!r}... ({len(cell):,} characters)"
    return repr(cell)


def parquet_header(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    check_regular(path)
    with _parquet(path):
        return list(polars.read_parquet_schema(path))


def read_parquet(path: Path, columns: Sequence[str]) -> TableFile:
    """Read columns of a Parquet file."""
    with _parquet(path):
        frame = polars.read_parquet(
            path, columns=list(columns), glob=False, hive_partitioning=False
        )
    return TableFile(path, lambda row: f"row {row} (from 0)", frame)


def csv_header(path: Path) -> list[str]:
    """Return the names of a CSV file's columns; two alike are refused."""
    _, names = next(csv_records(path), (0, []))
    header = [name.strip() for name in names]
    if not header:
        raise UserError(f"{path}: expected a header and rows, got an empty file.")
    name, times = Counter(header).most_common(1)[0]
    if times > 1:
        raise UsageError(
            f"{path}, line 1: expected every column to have a name of its own, got {name!r} "
            f"{times} times: rename or remove all but one."
        )
    return header


def read_csv(path: Path, columns: Sequence[str]) -> TableFile:
    """Read columns of a CSV file as text, in the order of the file: nothing is guessed."""
    header = csv_header(path)
    places = sorted(header.index(name) for name in columns)
    try:
        frame = polars.read_csv(path, columns=places, infer_schema=False, glob=False)
    except UNREADABLE as error:
        raise UserError(_what_is_wrong(path, len(header), error)) from None
    frame.columns = [header[place] for place in places]
    frame = _without_blank_end(frame.with_columns(polars.all().str.strip_chars()))
    return TableFile(path, lambda row: _place_of(path, row), frame)


def csv_records(path: Path) -> Iterator[Record]:
    """Yield the records of a CSV file from the header on, each with the line that it begins on."""
    check_regular(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from _records(path, file)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.") from None


def _records(path: Path, file: TextIO) -> Iterator[Record]:
    reader, begun, line = csv.reader(file), False, 1
    while True:
        try:
            record = next(reader, None)
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(_unreadable(path, line, error)) from None
        if record is None:
            return
        begun = begun or bool(record)  # blank lines before the header are not records
        if begun:
            yield line, record
        line = reader.line_num + 1


def csv_rows(path: Path, width: int) -> Iterator[Record]:
    """Yield the records after the header; blank lines may stand at the end alone."""
    blank = None
    for line, cells in itertools.islice(csv_records(path), 1, None):
        if not cells:
            blank = blank or line
            continue
        if blank is not None:
            raise UserError(f"{path}, line {blank}: expected a row, got a blank line: remove it.")
        if len(cells) != width:
            raise UserError(
                f"{path}, line {line}: expected {width} cells, as in the header, got {len(cells)}."
            )
        yield line, cells


@contextmanager
def _parquet(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise UserError(
            f"{path}: cannot be read as Parquet: {error_line(error)}. Is it whole, and Parquet?"
        ) from None


def _place_of(path: Path, row: int) -> str:
    """Return the line of the file on which a row begins: cells may hold line breaks."""
    try:
        found = (line for number, (line, _) in enumerate(csv_records(path), -1) if number == row)
        return f"line {next(found)}"
    except (UserError, StopIteration):  # a cell before it is too long to count lines
        return f"row {row} (from 0)"


def _without_blank_end(frame: polars.DataFrame) -> polars.DataFrame:
    """Drop blank lines at the end of a file; anywhere else they are rows with nothing in them."""
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series()
    last = filled.arg_true().max() if len(filled) else None
    return frame.head(int(last) + 1) if isinstance(last, int) else frame.clear()


def _unreadable(path: Path, line: int, error: UnicodeDecodeError | csv.Error) -> str:
    """Return why the csv module gave up at a record that begins on a line."""
    if isinstance(error, UnicodeDecodeError):
        return _other_bytes(path) or f"{path}: expected text in UTF-8, got other bytes: convert it."
    if "field larger than" in str(error):
        return (
            f"{path}, line {line}: expected cells of at most {LONGEST:,} characters, got a longer "
            "one: shorten it, or is a quote left open?"
        )
    return f"{path}, line {line}: cannot be read as CSV: {error_line(error)}."


def _what_is_wrong(path: Path, width: int, error: BaseException) -> str:
    """Return why polars cannot read a CSV file, with the line."""
    other = _other_bytes(path)
    if other is not None:
        return other
    for number, record in csv_records(path):
        if len(record) > width:
            return (
                f"{path}, line {number}: expected {width} cells, as in the header, got "
                f"{len(record)}: quote cells that hold commas."
            )
    return f"{path}: cannot be read as CSV: {error_line(error)}. Is a quote left open?"


def _other_bytes(path: Path) -> str | None:
    """Return what to say of the first line that is not UTF-8, if there is one."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not _decodes(line):
                return (
                    f"{path}, line {number}: expected text in UTF-8, got other bytes: convert it."
                )
    return None


def _decodes(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
