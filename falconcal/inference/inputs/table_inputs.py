"""CSV: one row per example, one column per input, read as it goes."""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy

from falconcal.errors import UsageError, UserError, did_you_mean
from falconcal.inference.inputs.input_source import BATCH, InputBatch, InputSource, row_batch
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.io.table_files import CsvRecord, csv_header, csv_rows, shown


def open_csv(path: Path, metadata: ModelMetadata) -> InputSource:
    """Return the rows of a CSV file: of the columns that were saved, or of all."""
    header = csv_header(path)
    return InputSource("row", None, _rows(path, metadata, header, _columns(path, metadata, header)))


def _columns(path: Path, metadata: ModelMetadata, header: Sequence[str]) -> list[int]:
    """Return the indices of the columns of the inputs."""
    if metadata.columns is not None:
        missing = next((name for name in metadata.columns if name not in header), None)
        if missing is not None:
            hint = did_you_mean(missing, header)
            raise UsageError(f"{path}, line 1: no column {missing!r}, an input. {hint}")
        return [header.index(name) for name in metadata.columns]
    if len(header) != math.prod(metadata.shape):
        raise UsageError(
            f"{path}, line 1: expected a column for each of the {math.prod(metadata.shape)} "
            f"inputs, got {len(header)}: leave others out, or save the model with the names of its "
            "columns."
        )
    if all(_is_number(name) for name in header):
        raise UsageError(f"{path}, line 1: expected a header with names, got only numbers.")
    return list(range(len(header)))


def _rows(
    path: Path, metadata: ModelMetadata, header: Sequence[str], columns: list[int]
) -> Iterator[InputBatch]:
    body, start = csv_rows(path, len(header)), 0
    while taken := list(itertools.islice(body, BATCH)):
        values = _numbers(path, header, columns, taken)  # (K, inputs)
        yield row_batch(path, metadata, start, values.reshape(len(taken), *metadata.shape))
        start += len(taken)


def _numbers(
    path: Path, header: Sequence[str], columns: list[int], taken: list[CsvRecord]
) -> numpy.ndarray:
    try:
        return numpy.array([[cells[column] for column in columns] for _, cells in taken], float)
    except ValueError:
        line, column, cell = _first_bad(columns, taken)
        raise UserError(
            f"{path}, line {line}, column {header[column]!r}: expected a number, got {shown(cell)}."
        ) from None


def _first_bad(columns: list[int], taken: list[CsvRecord]) -> tuple[int, int, str]:
    return next(
        (line, column, cells[column])
        for line, cells in taken
        for column in columns
        if not _is_number(cells[column])
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
