"""Evaluation: a model at every level of every shift, reduced to scores and then to rows.

Only one batch of probabilities is held at a time: each is reduced at once to scores per example,
and tables and figures come from these.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import polars
import torch
from torch import Tensor, nn

from falconcal.core.module_state import check_module
from falconcal.data import PREDICTION_BATCH_SIZE, Part
from falconcal.data.input_checks import check_size
from falconcal.data.sharding import RoundRobin
from falconcal.errors import UserError, described
from falconcal.metrics import POOLED, metrics_without, outlier_detection
from falconcal.metrics.outlier_detection import SIGNALS
from falconcal.metrics.predictions import Scores
from falconcal.models.predict import predict_batches
from falconcal.shifts import AnyShift, Outliers, Shift, StoredShift, shift_context
from falconcal.shifts.stored.stored_shift import StoredLevel

CLEAN = "clean"
OUTLIER_LEVEL = 1  # the level that outliers have in tables
SCORE_FIELDS = tuple(field.name for field in fields(Scores))
Progress = Callable[[str, int], None]


def evaluate(
    model: nn.Module,
    data: Part,
    shifts: Iterable[AnyShift],
    outliers: Iterable[Outliers] = (),
    *,
    single_process: bool = False,
) -> polars.DataFrame:
    """Measure a model by every metric at every level of every shift.

    Args:
        model: A module that returns logits.
        data: Test examples: ``Examples``, or a part of a dataset.
        shifts: Shifts to measure under, such as those of ``falconcal.SHIFTS``.
        outliers: Sets of inputs of no known class, such as those of ``falconcal.shifts.OUTLIERS``.
        single_process: For a process that calls it by itself while others work together.

    Returns:
        One row per shift, level and metric: shift, level, metric, value, examples. Pooled figures
        of a shift have no level.

    Raises:
        UserError: If an argument is not as described, or two shifts have the same name.

    Example:
        >>> import torch
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits").test
        >>> pixels = data.inputs[0].numel()
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, 10))
        >>> rows = falconcal.evaluate(model, data, [falconcal.SHIFTS["contrast"]])
        >>> rows.columns
        ['shift', 'level', 'metric', 'value', 'examples']
        >>> rows.filter(shift="contrast", metric="ece")["level"].to_list()
        [0, 1, 2, 3, 4, 5]
    """
    return scores_to_rows(
        score_under_shift(model, data, shifts, outliers, single_process=single_process)
    )


def score_under_shift(
    model: nn.Module,
    data: Part,
    shifts: Iterable[AnyShift],
    outliers: Iterable[Outliers] = (),
    *,
    seed: int = 0,
    batch_size: int = PREDICTION_BATCH_SIZE,
    progress: Progress | None = None,
    single_process: bool = False,
) -> polars.DataFrame:
    """Score every example at every level of every shift, and the outliers.

    The clean data, level 0 of all shifts, is scored once under the name ``clean``; outliers stand
    at level 1. Where several processes work together, all of them call it: each scores its share of
    the batches and returns the whole table.

    Args:
        model: A module that returns logits.
        data: Test examples: ``Examples``, or a part of a dataset.
        shifts: Shifts to score under.
        outliers: Sets of inputs of no known class.
        seed: Of the shifts' noise.
        batch_size: How many examples are predicted at once.
        progress: Called with the name and the level of each shift before it is scored.
        single_process: For a process that calls it by itself while others work together.

    Returns:
        One row per shift, level and example: shift, level, example and the fields of ``Scores``.

    Raises:
        UserError: If an argument is not as described, or two shifts have the same name.

    Example:
        >>> import torch
        >>> import falconcal
        >>> from falconcal.evaluation import score_under_shift
        >>> data = falconcal.load_dataset("digits").test
        >>> pixels = data.inputs[0].numel()
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, 10))
        >>> scores = score_under_shift(model, data, [falconcal.SHIFTS["contrast"]])
        >>> scores.height == 6 * len(data)
        True
    """
    check_module(model)
    check_size(batch_size)
    levels_to_score = list(_shift_levels(_Task(model, data, seed, batch_size), shifts, outliers))
    turns = RoundRobin(single_process)
    turns.check_same(data.first(batch_size).inputs, data.labels)  # the rest may be on a disk
    parts, sizes = [], []
    for step in levels_to_score:
        if progress is not None:
            progress(step.name, step.level)
        share = _Share(step.batches, turns, data.classes)
        parts += [predictions.scores().rows() for predictions in predict_batches(model, share)]
        sizes.append(share.examples)
    whole = Scores.from_rows(turns.in_order(torch.cat(parts) if parts else None))
    tables = zip(whole.split(sizes), levels_to_score, strict=True)
    return polars.concat([_frame(scores, step.name, step.level) for scores, step in tables])


def scores_to_rows(scores: polars.DataFrame) -> polars.DataFrame:
    """Reduce scores to rows: every metric at every level, and the pooled figures of each shift.

    Outliers, which have no true class, have confidence, entropy, and how well these separate them
    from the clean data.

    Args:
        scores: The table that ``score_under_shift`` returns.

    Returns:
        One row per shift, level and metric: shift, level, metric, value, examples.

    Raises:
        UserError: If the table is another.

    Example:
        >>> import torch
        >>> import falconcal
        >>> from falconcal.evaluation import score_under_shift, scores_to_rows
        >>> data = falconcal.load_dataset("digits").test
        >>> pixels = data.inputs[0].numel()
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, 10))
        >>> rows = scores_to_rows(score_under_shift(model, data, []))
        >>> sorted(set(rows["shift"]))
        ['clean']
    """
    if not isinstance(scores, polars.DataFrame) or not {"shift", "level"} <= set(scores.columns):
        raise UserError(
            "expected the table that falconcal.evaluation.score_under_shift gives, got "
            f"{described(scores)}."
        )
    clean = _scores(scores.filter(polars.col("shift") == CLEAN))
    clean_rows = _metric_rows(CLEAN, 0, clean)
    rows = clean_rows.copy()
    for name in scores["shift"].unique(maintain_order=True):
        table = scores.filter(polars.col("shift") == name)
        if name != CLEAN and (table["label"] < 0).all():
            rows += _outlier_rows(name, clean, _scores(table))
        elif name != CLEAN:
            rows += [{**row, "shift": name} for row in clean_rows]
            rows += _shift_rows(name, clean, scores_by_level(table))
    return polars.DataFrame(rows, schema=ROW_SCHEMA)


def scores_by_level(table: polars.DataFrame) -> dict[int, Scores]:
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


InputsAndLabels = tuple[Tensor, Tensor]
LazyBatch = tuple[
    int, Callable[[], InputsAndLabels]
]  # how many examples, and the batch once it is wanted


@dataclass(frozen=True, eq=False)
class _Task:
    """What is scored, and how it is cut."""

    model: nn.Module
    data: Part
    seed: int
    size: int


@dataclass(frozen=True, eq=False)
class _ShiftLevel:
    """One level of one shift, or a set of outliers."""

    name: str
    level: int
    batches: Iterable[LazyBatch]


class _Share:
    """This process's share of batches, made one at a time."""

    def __init__(
        self, batches: Iterable[LazyBatch], turns: RoundRobin, classes: tuple[str, ...] | None
    ) -> None:
        self.batches, self.turns, self.classes = batches, turns, classes
        self.examples = 0  # of all processes

    def __iter__(self) -> Iterator[InputsAndLabels]:
        for examples, make in self.batches:
            self.examples += examples
            if self.turns.is_mine(examples):
                yield make()


def _shift_levels(
    task: _Task, shifts: Iterable[AnyShift], outliers: Iterable[Outliers]
) -> Iterator[_ShiftLevel]:
    families, sets = _checked(task.data, _listed(shifts), _listed(outliers))
    yield _ShiftLevel(CLEAN, 0, _clean(task))
    for family in families:
        for level in family.levels[1:]:
            yield _ShiftLevel(family.name, level, _level(task, family, level))
    for one in sets:
        yield _ShiftLevel(one.name, OUTLIER_LEVEL, _outside(task, one))


def _listed(given: Iterable[Any]) -> list[Any]:
    """Return shifts or outliers as a list; a single one becomes a list of one."""
    if isinstance(given, AnyShift | Outliers | str):
        return [given]
    if isinstance(given, type) or not isinstance(given, Iterable):
        raise UserError(f"expected a list of shifts, or of outliers, got {described(given)}.")
    return list(given)


def _checked(
    data: Part, shifts: list[AnyShift], outliers: list[Outliers]
) -> tuple[list[AnyShift], list[Outliers]]:
    """Return what was given, checked."""
    if not isinstance(data, Part):
        raise UserError(
            "expected falconcal.Examples, or a part of a dataset, to evaluate on, got "
            f"{type(data).__name__}."
        )
    for kind, home, given in ((AnyShift, "SHIFTS", shifts), (Outliers, "OUTLIERS", outliers)):
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


def _clean(task: _Task) -> Iterator[LazyBatch]:
    for pair in task.data.batches(task.size):
        yield len(pair[1]), partial(_as_it_is, pair)


def _as_it_is(pair: InputsAndLabels) -> InputsAndLabels:
    return pair


def _level(task: _Task, family: AnyShift, level: int) -> Iterator[LazyBatch]:
    if isinstance(family, StoredShift):  # opened when its turn comes: it may list many files
        yield from _stored(task, family.level(level, task.data))
    else:
        yield from _shifted(task, family, level)


def _shifted(task: _Task, shift: Shift, level: int) -> Iterator[LazyBatch]:
    first = 0
    for inputs, labels in task.data.batches(task.size):
        yield len(labels), partial(_shift_batch, task, shift, level, inputs, labels, first)
        first += len(labels)


def _shift_batch(
    task: _Task, shift: Shift, level: int, inputs: Tensor, labels: Tensor, first: int
) -> InputsAndLabels:
    context = shift_context(task.data, first, labels, task.model)
    examples = torch.arange(first, first + len(labels))
    return shift.at(inputs, level, seed=task.seed, examples=examples, **context), labels


def _stored(task: _Task, level: StoredLevel) -> Iterator[LazyBatch]:
    for start in range(0, len(level), task.size):
        part = slice(start, start + task.size)
        yield len(level.labels[part]), partial(level.batch, part)


def _outside(task: _Task, outliers: Outliers) -> Iterator[LazyBatch]:
    for pair in outliers.batches(task.data, task.size, task.seed):
        yield len(pair[1]), partial(_as_it_is, pair)


def _outlier_rows(name: str, clean: Scores, outside: Scores) -> list[dict[str, object]]:
    unlabelled = metrics_without("labels", "all_classes")
    figures = {name: metric(outside) for name, metric in unlabelled.items()}
    for signal in SIGNALS:
        found = asdict(outlier_detection(clean, outside, signal))
        figures |= {f"{signal}_{figure}": value for figure, value in found.items()}
    return [
        _row(name, OUTLIER_LEVEL, metric, value, len(outside)) for metric, value in figures.items()
    ]


def _shift_rows(name: str, clean: Scores, levels: dict[int, Scores]) -> list[dict[str, object]]:
    rows = [row for level, part in levels.items() for row in _metric_rows(name, level, part)]
    every = [clean, *levels.values()]
    examples = sum(len(part) for part in every)
    return rows + [
        _row(name, None, figure, metric(every), examples) for figure, metric in POOLED.items()
    ]


def _metric_rows(shift: str, level: int, scores: Scores) -> list[dict[str, object]]:
    return [
        _row(shift, level, name, metric(scores), len(scores))
        for name, metric in metrics_without("all_classes").items()
    ]


def _row(
    shift: str, level: int | None, metric: str, value: float, examples: int
) -> dict[str, object]:
    return {"shift": shift, "level": level, "metric": metric, "value": value, "examples": examples}


def _frame(scores: Scores, shift: str, level: int) -> polars.DataFrame:
    """Return scores as a table, some tens of bytes per example."""
    columns = {name: getattr(scores, name).numpy() for name in SCORE_FIELDS}
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
    return Scores(
        **{name: torch.from_numpy(table[name].to_numpy().copy()) for name in SCORE_FIELDS}
    )
