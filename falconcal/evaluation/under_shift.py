"""Evaluation: models at every level of every shift, reduced to scores and then to rows.

Only one batch of probabilities is held at a time: each is reduced at once to scores per example,
and tables and figures come from these.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

import polars
import torch
from torch import Tensor, nn

from falconcal.core.batch import USUAL_FORM, BatchForm, checked_batches
from falconcal.core.freed_memory import freed_memory_kept
from falconcal.core.module_state import check_module
from falconcal.data import PREDICTION_BATCH_SIZE, Part, Preparation, as_part
from falconcal.data.given_data import AnyData
from falconcal.data.input_checks import check_inputs, check_size
from falconcal.data.sharding import RoundRobin
from falconcal.errors import UserError, described
from falconcal.evaluation.score_rows import SCORE_FIELDS, scores_to_rows
from falconcal.evaluation.shifted_batches import (
    OUTLIER_LEVEL,
    EvaluationData,
    InputsAndLabels,
    MakeBatch,
    ShiftLevel,
    shift_levels,
)
from falconcal.io.output_folder import CLEAN
from falconcal.metrics.predictions import Scores
from falconcal.models.predict import predict_batch
from falconcal.models.prepared_model import PreparedModel
from falconcal.recalibration.shared_pass import SharedWork, network_of
from falconcal.shifts import AnyShift, Outliers

__all__ = [
    "CLEAN",
    "OUTLIER_LEVEL",
    "evaluate",
    "score_together",
    "score_under_shift",
]

Progress = Callable[[str, int], None]
OnBatch = Callable[[str, int, int], None]
Key = TypeVar("Key", bound=Hashable)


def evaluate(
    model: nn.Module,
    data: AnyData,
    shifts: Iterable[AnyShift],
    outliers: Iterable[Outliers] = (),
    *,
    preparation: Preparation | None = None,
    single_process: bool = False,
) -> polars.DataFrame:
    """Measure a model by every metric at every level of every shift.

    Args:
        model: A module that returns logits.
        data: Test examples: a loader that does not shuffle, ``(inputs, labels)``, a mapping with
            the key ``labels``, ``Examples``, a part of a dataset, or a dataset.
        shifts: Shifts to measure under, such as those of ``falconcal.SHIFTS``.
        outliers: Sets of inputs of no known class, such as those of ``falconcal.shifts.OUTLIERS``.
        preparation: The mean and deviation per channel that images were normalised by, as
            ``falconcal.data.Preparation(mean=..., deviation=...)``: shifts then act on pixels from
            0 to 1, and the model is given them normalised again.
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
    part, model = _as_pixels(model, data, preparation)
    return scores_to_rows(
        score_under_shift(model, part, shifts, outliers, single_process=single_process)
    )


def _as_pixels(
    model: nn.Module, data: AnyData, preparation: Preparation | None
) -> tuple[Part, nn.Module]:
    """Return data and model so that images come as pixels, where they were normalised."""
    part = as_part(data, preparation)
    if preparation is None:
        return part, model
    if preparation.side is not None:
        raise UserError(
            "expected a preparation of mean and deviation alone, got side="
            f"{preparation.side}: images are averaged down before they are normalised."
        )
    check_module(model)
    form: BatchForm = getattr(data, "form", USUAL_FORM)
    return part, PreparedModel(model, preparation, form.perturb).train(model.training)


def score_under_shift(
    model: nn.Module,
    data: AnyData,
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
        data: Test examples: whatever ``evaluate`` takes.
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
    one = {"model": model}
    (scores,) = score_together(
        one, data, shifts, outliers,
        seed=seed, batch_size=batch_size, progress=progress, single_process=single_process,
    ).values()  # fmt: skip
    return scores


def score_together(
    models: Mapping[Key, nn.Module],
    data: AnyData,
    shifts: Iterable[AnyShift],
    outliers: Iterable[Outliers] = (),
    *,
    seed: int = 0,
    batch_size: int = PREDICTION_BATCH_SIZE,
    progress: Progress | None = None,
    single_process: bool = False,
    clean: bool = True,
    on_batch: OnBatch | None = None,
) -> dict[Key, polars.DataFrame]:
    """Score several models on the same examples, each to the bit as by itself.

    Every shifted batch is made once, calibrated models around the same network share its forward
    pass, and those that hold the same stored examples share the distances to them. Shifts that
    follow a model's gradient are made for each model. One batch of one model's probabilities is
    held at a time.

    Args:
        models: Modules that return logits, by any key.
        data: Test examples: whatever ``evaluate`` takes.
        shifts: Shifts to score under.
        outliers: Sets of inputs of no known class.
        seed: Of the shifts' noise.
        batch_size: How many examples are predicted at once.
        progress: Called with the name and the level of each shift before it is scored.
        single_process: For a process that calls it by itself while others work together.
        clean: Whether the clean data is scored too.
        on_batch: Called after each batch with the name and the level of the shift, and how many
            examples of the level are done.

    Returns:
        For each key the table that ``score_under_shift`` returns.

    Raises:
        UserError: If an argument is not as described, or two shifts have the same name.

    Example:
        >>> import copy
        >>> import torch
        >>> import falconcal
        >>> from falconcal.evaluation import score_together
        >>> data = falconcal.load_dataset("digits").test
        >>> pixels = data.inputs[0].numel()
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, 10))
        >>> models = {"as it is": model, "in float64": copy.deepcopy(model).double()}
        >>> scores = score_together(models, data, [falconcal.SHIFTS["contrast"]])
        >>> [scores[name].height == 6 * len(data) for name in models]
        [True, True]
    """
    _check_models(models)
    check_size(batch_size)
    data = as_part(data)
    steps = list(shift_levels(EvaluationData(data, seed, batch_size), shifts, outliers, clean))
    turns = RoundRobin(single_process)
    if turns.count > 1:  # the rest may be on a disk
        turns.check_same(data.head(batch_size).inputs, data.labels)
    scorer = _Scorer(models, data.classes, on_batch)
    sizes = []
    with freed_memory_kept():
        for step in steps:
            if progress is not None:
                progress(step.name, step.level)
            sizes.append(scorer.score(step, turns))
    return {
        key: _table(turns.in_order(torch.cat(parts) if parts else None), steps, sizes)
        for key, parts in scorer.parts.items()
    }


class _Scorer(Generic[Key]):
    """Gives each batch to all models, and keeps the scores of this process's examples."""

    def __init__(
        self,
        models: Mapping[Key, nn.Module],
        classes: tuple[str, ...] | None,
        on_batch: OnBatch | None,
    ) -> None:
        self.models, self.classes, self.on_batch = models, classes, on_batch
        self.work = SharedWork(models.values())
        self.parts: dict[Key, list[Tensor]] = {key: [] for key in models}
        self.groups: dict[nn.Module, list[Key]] = {}  # by the network that they share
        for key, model in models.items():
            self.groups.setdefault(network_of(model), []).append(key)

    def score(self, step: ShiftLevel, turns: RoundRobin) -> int:
        """Score one level; return how many examples it has in all processes."""
        examples = 0
        for size, make in step.batches:
            examples += size
            if turns.is_mine(size):
                self._score_batch(step, make)
            if self.on_batch is not None:
                self.on_batch(step.name, step.level, examples)
        return examples

    def _score_batch(self, step: ShiftLevel, make: MakeBatch) -> None:
        if step.needs_model:
            for key, model in self.models.items():
                self._predict([key], make(model))
            return
        batch = make(None)
        for keys in self.groups.values():  # what a network gave out is dropped before the next
            self._predict(keys, batch)

    def _predict(self, keys: list[Key], batch: InputsAndLabels) -> None:
        ((inputs, labels),) = checked_batches([batch])
        check_inputs(inputs)
        shared = self.work.batch()
        for key in keys:
            model = self.models[key]
            forward = partial(shared.output, model)
            predictions = predict_batch(model, forward, inputs, labels, self.classes)
            self.parts[key].append(predictions.scores().rows())


def _check_models(models: Mapping[Key, nn.Module]) -> None:
    if not isinstance(models, Mapping) or not models:
        raise UserError(f"expected models by name, at least one, got {described(models)}.")
    for model in models.values():
        check_module(model)


def _table(rows: Tensor, steps: list[ShiftLevel], sizes: list[int]) -> polars.DataFrame:
    """Return the scores of one model as a table: (N, fields) of all levels in turn."""
    parts = zip(Scores.from_rows(rows).split(sizes), steps, strict=True)
    return polars.concat([_frame(scores, step.name, step.level) for scores, step in parts])


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
