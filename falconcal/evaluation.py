"""Evaluation: a model under every level of every shift, reduced to scores and then to rows.

No more than one batch of probabilities is ever held: each is reduced at once to per-example scores,
and tables and figures come from these.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import polars
import torch
from torch import Tensor, nn

from falconcal.data import AT_ONCE, Part
from falconcal.data.examples import check_size
from falconcal.data.sharing import Turns
from falconcal.errors import UserError, described
from falconcal.metrics import METRICS, POOLED, outlier_detection
from falconcal.metrics.outliers import SIGNALS
from falconcal.modes import check_module
from falconcal.predictions import Scores, predict_batches
from falconcal.shifts import Ladder, Outliers, Shift, StoredShift, facts_of
from falconcal.shifts.stored.ladder import StoredLevel

CLEAN = "clean"
OUTSIDE = 1  # the level at which outliers stand
COLUMNS = tuple(field.name for field in fields(Scores))
Progress = Callable[[str, int], None]


def evaluate(
    model: nn.Module,
    data: Part,
    shifts: Iterable[Ladder],
    outliers: Iterable[Outliers] = (),
    *,
    alone: bool = False,
) -> polars.DataFrame:
    """Return rows of shift, level, metric, value and examples for a model."""
    return rows_of(score(model, data, shifts, outliers, alone=alone))


def score(
    model: nn.Module,
    data: Part,
    shifts: Iterable[Ladder],
    outliers: Iterable[Outliers] = (),
    *,
    seed: int = 0,
    batch_size: int = AT_ONCE,
    progress: Progress | None = None,
    alone: bool = False,
) -> polars.DataFrame:
    """Return the scores of every example at every level of every shift, and of the outliers.

    The clean data, level 0 of all of them, is scored once under the name ``clean``; outliers stand
    at level 1. Where several processes work together, all of them call it: each scores its share of
    the batches and has the whole table. ``alone`` is for a process that calls it by itself.
    """
    check_module(model)
    check_size(batch_size)
    rungs = list(_rungs(_Task(model, data, seed, batch_size), shifts, outliers))
    turns = Turns(alone)
    turns.check_same(data.first(batch_size).inputs, data.labels)  # the rest may lie on a disk
    parts, sizes = [], []
    for rung in rungs:
        if progress is not None:
            progress(rung.name, rung.level)
        share = _Share(rung.batches, turns, data.classes)
        parts += [predictions.scores().rows() for predictions in predict_batches(model, share)]
        sizes.append(share.examples)
    whole = Scores.from_rows(turns.in_order(torch.cat(parts) if parts else None))
    tables = zip(whole.split(sizes), rungs, strict=True)
    return polars.concat([_frame(scores, rung.name, rung.level) for scores, rung in tables])


def rows_of(scores: polars.DataFrame) -> polars.DataFrame:
    """Reduce scores to rows: every metric at every level, and the pooled figures of each shift.

    Outliers, which have no true class, have confidence, entropy and how well these tell them from
    the clean data.
    """
    if not isinstance(scores, polars.DataFrame) or not {"shift", "level"} <= set(scores.columns):
        raise UserError(f"expected the table that falconcal.score gives, got {described(scores)}.")
    clean = _scores(scores.filter(polars.col("shift") == CLEAN))
    clean_rows = _metric_rows(CLEAN, 0, clean)
    rows = clean_rows.copy()
    for name in scores["shift"].unique(maintain_order=True):
        table = scores.filter(polars.col("shift") == name)
        if name != CLEAN and (table["label"] < 0).all():
            rows += _outlier_rows(name, clean, _scores(table))
        elif name != CLEAN:
            rows += [{**row, "shift": name} for row in clean_rows]
            rows += _shift_rows(name, clean, levels_of(table))
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


Pair = tuple[Tensor, Tensor]
Promise = tuple[int, Callable[[], Pair]]  # how many examples, and the batch once it is wanted


@dataclass(frozen=True, eq=False)
class _Task:
    """What is scored, and how it is cut."""

    model: nn.Module
    data: Part
    seed: int
    size: int


@dataclass(frozen=True, eq=False)
class _Rung:
    """One level of one shift, or a set of outliers."""

    name: str
    level: int
    batches: Iterable[Promise]


class _Share:
    """This process's share of batches, made one at a time."""

    def __init__(
        self, batches: Iterable[Promise], turns: Turns, classes: tuple[str, ...] | None
    ) -> None:
        self.batches, self.turns, self.classes = batches, turns, classes
        self.examples = 0  # of all processes

    def __iter__(self) -> Iterator[Pair]:
        for examples, make in self.batches:
            self.examples += examples
            if self.turns.mine(examples):
                yield make()


def _rungs(task: _Task, shifts: Iterable[Ladder], outliers: Iterable[Outliers]) -> Iterator[_Rung]:
    ladders, sets = _checked(task.data, _listed(shifts), _listed(outliers))
    yield _Rung(CLEAN, 0, _clean(task))
    for ladder in ladders:
        for level in ladder.levels[1:]:
            yield _Rung(ladder.name, level, _level(task, ladder, level))
    for one in sets:
        yield _Rung(one.name, OUTSIDE, _outside(task, one))


def _listed(given: Iterable[Any]) -> list[Any]:
    """Return shifts, or outliers, in a list; one alone is taken for a list of it."""
    if isinstance(given, Ladder | Outliers | str):
        return [given]
    if isinstance(given, type) or not isinstance(given, Iterable):
        raise UserError(f"expected a list of shifts, or of outliers, got {described(given)}.")
    return list(given)


def _checked(
    data: Part, shifts: list[Ladder], outliers: list[Outliers]
) -> tuple[list[Ladder], list[Outliers]]:
    """Return what was given, or say what else was expected."""
    if not isinstance(data, Part):
        raise UserError(
            "expected falconcal.Examples, or a part of a dataset, to evaluate on, got "
            f"{type(data).__name__}."
        )
    for kind, home, given in ((Ladder, "SHIFTS", shifts), (Outliers, "OUTLIERS", outliers)):
        for one in given:
            if not isinstance(one, kind):
                raise UserError(
                    f"expected {home.lower()}, got {one!r}: take one from falconcal.{home}, or "
                    "make one."
                )
    names = [CLEAN, *(one.name for one in (*shifts, *outliers))]
    if len(set(names)) < len(names):
        raise UserError(f"expected shifts of different names, got {', '.join(names)}.")
    return shifts, outliers


def _clean(task: _Task) -> Iterator[Promise]:
    for pair in task.data.batches(task.size):
        yield len(pair[1]), partial(_as_it_is, pair)


def _as_it_is(pair: Pair) -> Pair:
    return pair


def _level(task: _Task, ladder: Ladder, level: int) -> Iterator[Promise]:
    if isinstance(ladder, StoredShift):  # opened when its turn comes: it may list many files
        yield from _stored(task, ladder.level(level, task.data))
    else:
        yield from _shifted(task, ladder, level)


def _shifted(task: _Task, shift: Shift, level: int) -> Iterator[Promise]:
    first = 0
    for inputs, labels in task.data.batches(task.size):
        yield len(labels), partial(_shift_batch, task, shift, level, inputs, labels, first)
        first += len(labels)


def _shift_batch(
    task: _Task, shift: Shift, level: int, inputs: Tensor, labels: Tensor, first: int
) -> Pair:
    facts = facts_of(task.data, first, labels, task.model)
    examples = torch.arange(first, first + len(labels))
    return shift.at(inputs, level, seed=task.seed, examples=examples, **facts), labels


def _stored(task: _Task, level: StoredLevel) -> Iterator[Promise]:
    for start in range(0, len(level), task.size):
        part = slice(start, start + task.size)
        yield len(level.labels[part]), partial(level.batch, part)


def _outside(task: _Task, outliers: Outliers) -> Iterator[Promise]:
    for pair in outliers.batches(task.data, task.size, task.seed):
        yield len(pair[1]), partial(_as_it_is, pair)


def _outlier_rows(name: str, clean: Scores, outside: Scores) -> list[dict[str, object]]:
    figures = {metric: METRICS[metric](outside) for metric in ("entropy", "confidence")}
    for signal in SIGNALS:
        found = asdict(outlier_detection(clean, outside, signal))
        figures |= {f"{signal}_{figure}": value for figure, value in found.items()}
    return [_row(name, OUTSIDE, metric, value, len(outside)) for metric, value in figures.items()]


def _shift_rows(name: str, clean: Scores, levels: dict[int, Scores]) -> list[dict[str, object]]:
    rows = [row for level, part in levels.items() for row in _metric_rows(name, level, part)]
    every = [clean, *levels.values()]
    examples = sum(len(part) for part in every)
    return rows + [
        _row(name, None, metric, function(every), examples) for metric, function in POOLED.items()
    ]


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
