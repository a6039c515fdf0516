"""Conformal sets at every level of every shift: where they lose the coverage that they promise."""

from collections.abc import Iterable, Mapping
from functools import partial

import polars
from torch import nn

from falconcal.core.model_inputs import call_model
from falconcal.data import PREDICTION_BATCH_SIZE, Part
from falconcal.evaluation.shifted_batches import EvaluationData, ShiftLevel, shift_levels
from falconcal.metrics import CONFORMAL_KINDS, ConformalSets, Predictions, fit_conformal
from falconcal.models.predict import predict_batch
from falconcal.shifts import AnyShift

SET_SCHEMA = {
    "shift": polars.String,
    "level": polars.Int64,
    "kind": polars.String,
    "coverage": polars.Float64,
    "size": polars.Float64,
    "examples": polars.Int64,
}


def sets_under_shift(
    model: nn.Module,
    calibration: Predictions,
    data: Part,
    shifts: Iterable[AnyShift],
    alpha: float = 0.1,
) -> polars.DataFrame:
    """Measure coverage and size of conformal sets at every level of every shift.

    Args:
        model: A module that returns logits.
        calibration: Its predictions on examples that did not train it, with labels.
        data: Test examples: ``Examples``, or a part of a dataset.
        shifts: Shifts to measure under.
        alpha: The fraction of sets that may miss the true class.

    Returns:
        One row per shift, level and kind of sets: shift, level, kind, coverage, size, examples.
        Clean data, level 0 of all shifts, stands under the name ``clean``.

    Example:
        >>> import torch
        >>> import falconcal
        >>> from falconcal.evaluation import sets_under_shift
        >>> data = falconcal.load_dataset("digits")
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        >>> seen = falconcal.predict(model, data.validation)
        >>> rows = sets_under_shift(model, seen, data.test, [falconcal.SHIFTS["contrast"]])
        >>> rows.filter(kind="lac")["level"].to_list()
        [0, 1, 2, 3, 4, 5]
    """
    made: dict[str, ConformalSets] = {
        kind: fit_conformal(calibration, alpha, kind) for kind in CONFORMAL_KINDS
    }
    steps = shift_levels(EvaluationData(data, 0, PREDICTION_BATCH_SIZE), shifts, ())
    rows = [row for step in steps for row in _level_rows(model, made, step, data)]
    return polars.DataFrame(rows, schema=SET_SCHEMA, orient="row")


def _level_rows(
    model: nn.Module, made: Mapping[str, ConformalSets], step: ShiftLevel, data: Part
) -> list[tuple[object, ...]]:
    """Return a row per kind: means over the batches of a level, one of which is held at a time."""
    totals = {kind: [0.0, 0.0] for kind in made}
    examples = 0
    for _, make in step.batches:
        inputs, labels = make(model)
        predictions = predict_batch(model, partial(call_model, model), inputs, labels, data.classes)
        examples += len(labels)
        for kind, sets in made.items():
            found = sets.summary(predictions)
            totals[kind][0] += found.coverage * len(labels)
            totals[kind][1] += found.mean_size * len(labels)
    return [
        (step.name, step.level, kind, covered / examples, size / examples, examples)
        for kind, (covered, size) in totals.items()
    ]
