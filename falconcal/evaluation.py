"""Evaluation: a model under every level of every shift, reduced to scores and then to rows.

No more than one batch of probabilities is ever held: each is reduced at once to per-example scores,
and tables and figures come from these.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields

import polars
import torch
from torch import nn

from falconcal.data import Part
from falconcal.data.sharing import Turns
from falconcal.errors import UserError
from falconcal.metrics import METRICS, POOLED
from falconcal.predictions import Scores, predict_batches
from falconcal.shifts import Shift, facts_of

CLEAN = "clean"
COLUMNS = tuple(field.name for field in fields(Scores))
Progress = Callable[[str, int], None]


def evaluate(
    model: nn.Module, data: Part, shifts: Iterable[Shift], *, alone: bool = False
) -> polars.DataFrame:
    """Return rows of shift, level, metric, value and examples for a model."""
    return rows_of(score(model, data, shifts, alone=alone))


def score(
    model: nn.Module,
    data: Part,
    shifts: Iterable[Shift],
    *,
    seed: int = 0,
    batch_size: int = 500,
    progress: Progress | None = None,
    alone: bool = False,
) -> polars.DataFrame:
    """Return the scores of every example at every level of every shift.

    The clean data, level 0 of all of them, is scored once under the name ``clean``. Where several
    processes work together, all of them call it: each scores its share of the batches and has the
    whole table. ``alone`` is for a process that calls it by itself.
    """
    if not isinstance(data, Part):
        raise UserError(
            "expected falconcal.Examples, or a part of a dataset, to evaluate on, got "
            f"{type(data).__name__}."
        )
    shifts = [_checked(shift) for shift in shifts]
    names = [CLEAN, *(shift.name for shift in shifts)]
    if len(set(names)) < len(names):
        raise UserError(f"expected shifts of different names, got {', '.join(names)}.")
    rungs: list[tuple[Shift | None, int]] = [(None, 0)]
    rungs += [(shift, level) for shift in shifts for level in shift.levels[1:]]
    turns = Turns(alone)
    turns.check_same(data.first(batch_size).inputs, data.labels)  # the rest may lie on a disk
    parts = []
    for rung, level in rungs:
        if progress is not None:
            progress(_name(rung), level)
        batches = _Shifted(model, data, rung, level, seed, batch_size, turns)
        parts += [predictions.scores().rows() for predictions in predict_batches(model, batches)]
    whole = Scores.from_rows(turns.in_order(torch.cat(parts) if parts else None))
    tables = zip(whole.split(len(data)), rungs, strict=True)
    return polars.concat([_frame(scores, _name(rung), level) for scores, (rung, level) in tables])


def _name(rung: Shift | None) -> str:
    return rung.name if rung else CLEAN


def _checked(shift: Shift) -> Shift:
    if not isinstance(shift, Shift):
        raise UserError(
            f"expected shifts, got {shift!r}: take one from falconcal.SHIFTS, or make a Shift."
        )
    return shift


def rows_of(scores: polars.DataFrame) -> polars.DataFrame:
    """Reduce scores to rows: every metric at every level, and the pooled figures of each shift."""
    clean = _scores(scores.filter(polars.col("shift") == CLEAN))
    rows = _metric_rows(CLEAN, 0, clean)
    clean_rows = rows.copy()
    for name in scores["shift"].unique(maintain_order=True):
        if name == CLEAN:
            continue
        levels = {0: clean, **levels_of(scores.filter(polars.col("shift") == name))}
        rows += [{**row, "shift": name} for row in clean_rows]
        for level, part in levels.items():
            rows += _metric_rows(name, level, part) if level > 0 else []
        examples = sum(len(part) for part in levels.values())
        rows += [
            _row(name, None, metric, function(list(levels.values())), examples)
            for metric, function in POOLED.items()
        ]
    return polars.DataFrame(rows, schema=ROW_SCHEMA)


def levels_of(table: polars.DataFrame) -> dict[int, Scores]:
    """Return the scores of each level in a table of one shift."""
    parts = table.partition_by("level", maintain_order=True)
    return {int(part["level"][0]): _scores(part) for part in parts}


ROW_SCHEMA = {
    "shift": polars.String,
    "level": polars.Int64,  # empty for the pooled figures of a shift
    "metric": polars.String,
    "value": polars.Float64,
    "examples": polars.Int64,
}


class _Shifted:
    """This process's batches of the data at one level of a shift, made one at a time."""

    def __init__(
        self,
        model: nn.Module,
        data: Part,
        shift: Shift | None,
        level: int,
        seed: int,
        batch_size: int,
        turns: Turns,
    ) -> None:
        self.model, self.data, self.shift, self.level, self.seed = model, data, shift, level, seed
        self.batch_size, self.classes, self.turns = batch_size, data.classes, turns

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        first = 0
        for inputs, labels in self.data.batches(self.batch_size):
            examples = torch.arange(first, first + len(inputs))
            first += len(inputs)
            if not self.turns.mine(len(inputs)):
                continue
            if self.shift is not None:
                facts = facts_of(self.data, int(examples[0]), labels, self.model)
                inputs = self.shift.at(
                    inputs, self.level, seed=self.seed, examples=examples, **facts
                )
            yield inputs, labels


def _metric_rows(shift: str, level: int, scores: Scores) -> list[dict[str, object]]:
    return [
        _row(shift, level, metric, function(scores), len(scores))
        for metric, function in METRICS.items()
    ]


def _row(
    shift: str, level: int | None, metric: str, value: float, examples: int
) -> dict[str, object]:
    return {"shift": shift, "level": level, "metric": metric, "value": value, "examples": examples}


def _frame(scores: Scores, shift: str, level: int) -> polars.DataFrame:
    """Return scores as a table, some tens of bytes an example."""
    columns = {name: getattr(scores, name).numpy() for name in COLUMNS}
    return polars.DataFrame(columns).select(
        polars.lit(shift).cast(polars.Categorical).alias("shift"),
        polars.lit(level, polars.Int16).alias("level"),
        polars.int_range(polars.len(), dtype=polars.Int64).alias("example"),
        polars.col("label", "prediction").cast(polars.Int32),
        polars.col("confidence"),
        polars.col("correct"),
        polars.col("nll", "entropy", "brier").cast(polars.Float32),
    )


def _scores(table: polars.DataFrame) -> Scores:
    return Scores(**{name: torch.from_numpy(table[name].to_numpy().copy()) for name in COLUMNS})
