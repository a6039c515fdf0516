"""The batches of an evaluation: every level of every shift, each made when its turn comes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import Inputs
from falconcal.data import Part
from falconcal.errors import UserError, described
from falconcal.io.output_folder import CLEAN
from falconcal.shifts import AnyShift, Outliers, Shift, StoredShift, shift_context, shift_inputs
from falconcal.shifts.stored.stored_shift import StoredLevel

OUTLIER_LEVEL = 1  # the level that outliers have in tables

InputsAndLabels = tuple[Inputs, Tensor]
# makes a batch for a model; None does where the level does not depend on the model
MakeBatch = Callable[[nn.Module | None], InputsAndLabels]
LazyBatch = tuple[int, MakeBatch]  # how many examples, and the batch once it is wanted


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """What models are scored on, and how it is cut."""

    data: Part
    seed: int
    size: int


@dataclass(frozen=True, eq=False)
class ShiftLevel:
    """One level of one shift, or a set of outliers."""

    name: str
    level: int
    batches: Iterable[LazyBatch]
    needs_model: bool = False  # its batches are other ones for every model


def shift_levels(
    task: EvaluationData,
    shifts: Iterable[AnyShift],
    outliers: Iterable[Outliers],
    clean: bool = True,
) -> Iterator[ShiftLevel]:
    """Yield all levels in the order of tables: clean, shifts, outliers; the arguments checked."""
    families, sets = _checked(_listed(shifts), _listed(outliers))
    if not (clean or families or sets):
        raise UserError("expected shifts or outliers where clean data is left out, got none.")
    if clean:
        yield ShiftLevel(CLEAN, 0, _clean(task))
    for family in families:
        needs_model = isinstance(family, Shift) and "model" in family.needs
        for level in family.levels[1:]:
            yield ShiftLevel(family.name, level, _level(task, family, level), needs_model)
    for one in sets:
        yield ShiftLevel(one.name, OUTLIER_LEVEL, _outside(task, one))


def _listed(given: Iterable[Any]) -> list[Any]:
    """Return shifts or outliers as a list; a single one becomes a list of one."""
    if isinstance(given, AnyShift | Outliers | str):
        return [given]
    if isinstance(given, type) or not isinstance(given, Iterable):
        raise UserError(f"expected a list of shifts, or of outliers, got {described(given)}.")
    return list(given)


def _checked(
    shifts: list[AnyShift], outliers: list[Outliers]
) -> tuple[list[AnyShift], list[Outliers]]:
    """Return what was given, checked."""
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


def _clean(task: EvaluationData) -> Iterator[LazyBatch]:
    for pair in task.data.batches(task.size):
        yield len(pair[1]), partial(_as_it_is, pair)


def _as_it_is(pair: InputsAndLabels, _: nn.Module | None) -> InputsAndLabels:
    return pair


def _level(task: EvaluationData, family: AnyShift, level: int) -> Iterator[LazyBatch]:
    if isinstance(family, StoredShift):  # opened when its turn comes: it may list many files
        yield from _stored(task, family.level(level, task.data))
    else:
        yield from _shifted(task, family, level)


def _shifted(task: EvaluationData, shift: Shift, level: int) -> Iterator[LazyBatch]:
    first = 0
    for inputs, labels in task.data.batches(task.size):
        yield len(labels), partial(_shift_batch, task, shift, level, inputs, labels, first)
        first += len(labels)


def _shift_batch(
    task: EvaluationData,
    shift: Shift,
    level: int,
    inputs: Inputs,
    labels: Tensor,
    first: int,
    model: nn.Module | None,
) -> InputsAndLabels:
    context = shift_context(task.data, first, labels, model)
    examples = torch.arange(first, first + len(labels))
    moved = shift_inputs(shift, inputs, level, seed=task.seed, examples=examples, **context)
    return moved, labels


def _stored(task: EvaluationData, level: StoredLevel) -> Iterator[LazyBatch]:
    for start in range(0, len(level), task.size):
        part = slice(start, start + task.size)
        yield len(level.labels[part]), partial(_read_batch, level, part)


def _read_batch(level: StoredLevel, part: slice, _: nn.Module | None) -> InputsAndLabels:
    return level.batch(part)


def _outside(task: EvaluationData, outliers: Outliers) -> Iterator[LazyBatch]:
    for pair in outliers.batches(task.data, task.size, task.seed):
        yield len(pair[1]), partial(_as_it_is, pair)
