"""CSV and Parquet: columns by name, one row per example. Errors name the row and the column."""

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

# on some damaged files polars panics, which is not an ordinary exception
UNREADABLE = (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError, MemoryError)
MAX_CELL_CHARACTERS = csv.field_size_limit()  # an open quote makes a longer cell
MAX_SHOWN_CHARACTERS = 60  # of a cell, in a message

CsvRecord = tuple[int, list[str]]  # the line it begins on, its cells


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a file, which errors name by their position."""

    path: Path
    place: Callable[[int], str]  # the position of row N, from 0, in words

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
                f"expected a value, got {came}: fill it or remove the row.", row, column.name
            )

    def numbers(self, column: polars.Series) -> numpy.ndarray:
        """Return a column as float64, (N,); refuse text that is not a number."""
        self.check_filled(column)
        if not (column.dtype.is_numeric() or column.dtype == polars.String):
            raise self.problem(f"expected numbers, got {column.dtype}.", column=column.name)
        numbers = column.cast(polars.Float64, strict=False)
        if numbers.null_count():
            row = int(numbers.is_null().arg_true()[0])
            raise self.problem(
                f"expected a number, got {shown(column[row])}: every cell of the column must be "
                "one, with a decimal point.",
                row,
                column.name,
            )
        self.check_filled(numbers)  # text may say NaN
        return numbers.to_numpy()


@dataclass(frozen=True, eq=False)
class TableFile(Rows):
    """Columns of a file, not checked yet."""

    frame: polars.DataFrame  # N rows


def shown(cell: object) -> str:
    """Return a cell as errors show it, shortened if it is long."""
    if isinstance(cell, str) and len(cell) > MAX_SHOWN_CHARACTERS:
        return f"{cell[:MAX_SHOWN_CHARACTERS]!r}... ({len(cell):,} characters)"
    return repr(cell)


def parquet_header(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    check_regular(path)
    with _parquet(path):
        return list(polars.read_parquet_schema(path))


def read_parquet_columns(path: Path, columns: Sequence[str]) -> TableFile:
    """Read columns of a Parquet file."""
    with _parquet(path):
        frame = polars.read_parquet(
            path, columns=list(columns), glob=False, hive_partitioning=False
        )
    return TableFile(path, lambda row: f"row {row} (from 0)", frame)


def csv_header(path: Path, *, named: bool = True) -> list[str]:
    """Return the names of a CSV file's columns, 0, 1, ... if no line names them.

    A name that occurs twice is refused.
    """
    _, names = next(csv_records(path), (0, []))
    if names and not named:
        return [str(number) for number in range(len(names))]
    header = [name.strip() for name in names]
    if not header:
        raise UserError(f"{path}: expected a header and rows, got an empty file.")
    name, times = Counter(header).most_common(1)[0]
    if times > 1:
        raise UsageError(
            f"{path}, line 1: expected each name once, got {name!r} {times} times: rename or "
            "remove all but one."
        )
    return header


def read_csv_columns(path: Path, columns: Sequence[str], *, named: bool = True) -> TableFile:
    """Read columns of a CSV file as text, in the order of the file; no type is guessed."""
    header = csv_header(path, named=named)
    places = sorted(header.index(name) for name in columns)
    try:
        frame = polars.read_csv(
            path, columns=places, infer_schema=False, glob=False, has_header=named
        )
    except UNREADABLE as error:
        raise UserError(_csv_error(path, len(header), error)) from None
    frame.columns = [header[place] for place in places]
    frame = _without_blank_end(frame.with_columns(polars.all().str.strip_chars()))
    return TableFile(path, lambda row: _position_of(path, row - (not named)), frame)


def csv_records(path: Path) -> Iterator[CsvRecord]:
    """Yield the records of a CSV file, the header first, each with the line that it begins on."""
    check_regular(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from _records(path, file)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.") from None


def _records(path: Path, file: TextIO) -> Iterator[CsvRecord]:
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


def csv_rows(path: Path, width: int) -> Iterator[CsvRecord]:
    """Yield the records after the header; blank lines are allowed only at the end."""
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
            f"{path}: cannot be read as Parquet: {error_line(error)}. Is it complete, and Parquet?"
        ) from None


def _position_of(path: Path, row: int) -> str:
    """Return the line of the file on which a row begins; cells may hold line breaks."""
    try:
        found = (line for number, (line, _) in enumerate(csv_records(path), -1) if number == row)
        return f"line {next(found)}"
    except (UserError, StopIteration):  # a cell before it is too long to count lines
        return f"row {row} (from 0)"


def _without_blank_end(frame: polars.DataFrame) -> polars.DataFrame:
    """Drop blank lines at the end of a file; elsewhere they are rows of empty cells."""
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series()
    last = filled.arg_true().max() if len(filled) else None
    return frame.head(int(last) + 1) if isinstance(last, int) else frame.clear()


def _unreadable(path: Path, line: int, error: UnicodeDecodeError | csv.Error) -> str:
    """Return why the csv module cannot read the record that begins on a line."""
    if isinstance(error, UnicodeDecodeError):
        return _other_bytes(path) or f"{path}: expected text in UTF-8, got other bytes: convert it."
    if "field larger than" in str(error):
        return (
            f"{path}, line {line}: expected cells of at most {MAX_CELL_CHARACTERS:,} characters, "
            "got a longer one: shorten it, or is a quote left open?"
        )
    return f"{path}, line {line}: cannot be read as CSV: {error_line(error)}."


def _csv_error(path: Path, width: int, error: BaseException) -> str:
    """Return why polars cannot read a CSV file, with the line if it is known."""
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
    """Return the error for the first line that is not UTF-8; None if all are."""
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
