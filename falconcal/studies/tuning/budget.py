"""What a trial may cost: the table ``[tuning]`` of a study."""

import dataclasses
from typing import Any, Literal

from falconcal.core.settings import Count, settings
from falconcal.data import Dataset, Part
from falconcal.data.part import epoch_order
from falconcal.data.subsets import select
from falconcal.errors import UsageError

SUBSET_SEED = 0  # every method, worker and seed sees the same examples


@settings
class Tuning:
    """The budget of a trial, which no run shares, and how points are chosen."""

    epochs: Count | None = None  # the method's own unless given
    examples: Count | None = None  # of the training data; all unless given
    validation_examples: Count | None = None
    test_examples: Count | None = None  # where trials are scored on test data too
    samples: Count | None = None  # of methods that draw them for a prediction
    # random: points drawn beforehand, none twice. tpe: Optuna's, which looks at earlier trials
    sampler: Literal["random", "tpe"] = "random"


def read_tuning(values: dict[str, Any]) -> Tuning:
    """Return the table as settings; a mistake is named by the table."""
    try:
        return Tuning(**values)
    except UsageError as error:
        raise UsageError(f"[tuning] {error}") from None


def budgeted(dataset: Dataset, tuning: Tuning) -> Dataset:
    """Return a dataset cut down to the budget."""
    return dataclasses.replace(
        dataset,
        train=sample_for_trial(dataset.train, tuning.examples),
        validation=sample_for_trial(dataset.validation, tuning.validation_examples),
        test=sample_for_trial(dataset.test, tuning.test_examples),
    )


def sample_for_trial(part: Part, count: int | None) -> Part:
    """Return so many examples, drawn once and for all, or all of them."""
    if count is None or count >= len(part):
        return part
    return select(part, epoch_order(len(part), SUBSET_SEED, 0)[:count])
