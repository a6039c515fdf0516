"""The budget of a trial: the table ``[tuning]`` of a study."""

import dataclasses
from typing import Any, Literal

from falconcal.core.settings import Count, settings
from falconcal.data import Dataset, Part
from falconcal.data.part import epoch_order
from falconcal.data.subsets import select
from falconcal.errors import UsageError

SUBSET_SEED = 0  # every method, worker and seed gets the same examples


@settings
class Tuning:
    """The budget of a trial, which does not apply to runs, and how points are chosen."""

    epochs: Count | None = None
    """Epochs of a trial; None takes the method's own setting."""
    examples: Count | None = None
    """Training examples of a trial; None takes all."""
    validation_examples: Count | None = None
    """Validation examples that judge a trial; None takes all."""
    test_examples: Count | None = None
    """Test examples, where trials are scored on test data too; None takes all."""
    samples: Count | None = None
    """Samples per prediction, of methods that draw samples; None takes the method's own setting."""
    keep_weights: bool = True
    """Whether the weights of complete trials are kept, so that another criterion can judge them."""
    sampler: Literal["random", "tpe"] = "random"
    """random: points drawn beforehand, each at most once; tpe: Optuna chooses by earlier trials."""


def read_tuning(values: dict[str, Any]) -> Tuning:
    """Return the table as settings; an error names the table."""
    try:
        return Tuning(**values)
    except UsageError as error:
        raise UsageError(f"[tuning] {error}") from None


def budgeted(dataset: Dataset, tuning: Tuning) -> Dataset:
    """Return a dataset with as many examples per part as the budget allows."""
    return dataclasses.replace(
        dataset,
        train=sample_for_trial(dataset.train, tuning.examples),
        validation=sample_for_trial(dataset.validation, tuning.validation_examples),
        test=sample_for_trial(dataset.test, tuning.test_examples),
    )


def sample_for_trial(part: Part, count: int | None) -> Part:
    """Return ``count`` examples, always the same ones; all of them where it is None."""
    if count is None or count >= len(part):
        return part
    return select(part, epoch_order(len(part), SUBSET_SEED, 0)[:count])
