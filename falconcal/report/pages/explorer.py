"""What the page needs to show any level of any shift: bins, a histogram, how many pictures."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy
import polars

from falconcal.drawing.theme import COLOURS, cycled
from falconcal.evaluation.under_shift import CLEAN, OUTLIER_LEVEL
from falconcal.metrics import BINS
from falconcal.report.confidence_cells import CONFIDENCE_CELLS, confidence_cells
from falconcal.report.ranking import first_shown, group_of, ranked_series, telling_level
from falconcal.report.results import Results

EXPLORER_DIGITS = 4
SeriesLevel = tuple[str, str, int]  # series, shift, level


def explorer_data(results: Results) -> dict[str, Any]:
    """Return every level of every shift for every series, ready for JSON, and what is shown first.

    The clean data, level 0 of all shifts, stands once for each series; after it come the shifts in
    the order of the page and, last, the sets of outliers.
    """
    by_level = _level_cells(confidence_cells(results))
    levels = _levels(by_level)
    shifts = [shift for shift in (*results.shifts, *results.outliers) if shift in levels]
    shift, level = telling_level(results)
    return {
        "bins": BINS,
        "cells": CONFIDENCE_CELLS,
        "inputs": results.inputs,
        "series": list(results.series),
        "ranked": ranked_series(results),
        "first": first_shown(results),
        "groups": {series: group_of(results, series) for series in results.series},
        "start": {"shift": shift, "level": level},
        "colours": cycled(COLOURS, len(results.series)),
        "shifts": [_shift(results, shift, levels[shift]) for shift in shifts],
        "clean": [by_level.get((series, CLEAN, 0)) for series in results.series],
        "rungs": [
            [[by_level.get((series, shift, level)) for level in levels[shift]] for shift in shifts]
            for series in results.series
        ],
    }


def _shift(results: Results, shift: str, levels: list[int]) -> dict[str, Any]:
    if shift in results.outliers:
        return {"name": shift, "kind": "outliers", "levels": [OUTLIER_LEVEL], "columns": 0}
    kind = "selection" if shift in results.selection_shifts else "tested"
    columns = 1 + len(levels) if shift in results.examples else 0
    return {"name": shift, "kind": kind, "levels": [0, *levels], "columns": columns}


def _levels(found: Iterable[SeriesLevel]) -> dict[str, list[int]]:
    """Return the levels of each shift that any series has, the clean one left out."""
    levels: dict[str, set[int]] = defaultdict(set)
    for _, shift, level in found:
        levels[shift] |= {level} - {0}
    return {shift: sorted(present) for shift, present in levels.items()}


def _level_cells(cells: polars.DataFrame) -> dict[SeriesLevel, dict[str, Any]]:
    parts = cells.partition_by("series", "shift", "level", as_dict=True, maintain_order=True)
    return {
        (str(key[0]), str(key[1]), int(key[2])): _level_cell(part) for key, part in parts.items()
    }


def _level_cell(part: polars.DataFrame) -> dict[str, Any]:
    """Return the examples of one level: how many, how right, how sure, and how both are spread."""
    counts, sums, hits = (_filled(part, name) for name in ("counts", "confidence_sum", "hits"))
    examples = counts.sum()
    known = int(part["lowest_label"].to_numpy().min()) >= 0
    numbers: dict[str, Any] = {
        "n": int(examples),
        "accuracy": _rounded(hits.sum() / examples) if known else None,
        "confidence": _rounded(sums.sum() / examples),
        "ece": None,
        "cells": [int(count) for count in counts],
        "bins": None,
    }
    if known:
        counts, sums, hits = (column.reshape(BINS, -1).sum(1) for column in (counts, sums, hits))
        numbers["ece"] = _rounded(numpy.abs(hits - sums).sum() / examples)
        numbers["bins"] = [
            [_rounded(sure / count), _rounded(right / count)] if count else None
            for count, sure, right in zip(counts, sums, hits, strict=True)
        ]
    return numbers


def _filled(part: polars.DataFrame, name: str) -> numpy.ndarray:
    """Return a column with one entry per cell, 0 where the table has none: (cells,)."""
    values = numpy.zeros(CONFIDENCE_CELLS)
    values[part["cell"].to_numpy()] = part[name].to_numpy()
    return values


def _rounded(value: float) -> float:
    return round(float(value), EXPLORER_DIGITS)
