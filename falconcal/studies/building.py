"""What a study names, made: its data, its network, and one trained on the other."""

import torch
from torch import nn

from falconcal.core.method import Method
from falconcal.core.registry import name_and_settings
from falconcal.data import Batches, Dataset, load_named, subset_all_parts, subset_test
from falconcal.errors import UserError
from falconcal.models import make_named
from falconcal.shifts import Shift, StoredShift, shift_context
from falconcal.studies.study import Study


def load_study_dataset(study: Study) -> Dataset:
    """Load the dataset that a study names, with the settings it gives."""
    name, settings = name_and_settings("dataset", study.dataset)
    dataset = load_named(name, settings, study.trust)
    if study.examples is not None:
        dataset = subset_all_parts(dataset, study.examples)
    return subset_test(dataset, study.test_examples)


def make_study_model(study: Study, dataset: Dataset, seed: int = 0) -> nn.Module:
    """Make the network that a study names, its first weights by the seed."""
    name, settings = name_and_settings("model", study.model)
    return make_named(name, settings, dataset, seed, study.trust)


def train_method(
    study: Study, dataset: Dataset, seed: int, method: Method, validation: Batches
) -> nn.Module:
    """Train a method on a study's network and data, all from one seed."""
    model = make_study_model(study, dataset, seed)
    return method.fit(model, dataset.training_batches(study.batch_size, seed), validation)


def check_shifts(study: Study, dataset: Dataset) -> None:
    """Find out before training whether shifts and outliers fit this data."""
    one, shifts = dataset.test.first(1), study.all_shifts()
    asked = any(isinstance(shift, Shift) and "model" in shift.needs for shift in shifts)
    model = make_study_model(study, dataset) if asked else None
    for shift in shifts:
        if isinstance(shift, StoredShift):
            _try_stored(shift, dataset)
        else:
            shift.at(one.inputs, shift.levels[-1], **shift_context(one, 0, one.labels, model))
    for outliers in study.all_outliers():
        next(outliers.batches(dataset.test, 1))


def _try_stored(shift: StoredShift, dataset: Dataset) -> None:
    """Refuse what should be stored of all test examples, in their order, and is not."""
    for level in shift.levels[1:]:
        stored = shift.level(level, dataset.test)
        if not shift.own_examples and not torch.equal(stored.labels, dataset.test.labels):
            raise UserError(
                f"expected the {len(dataset.test)} test examples of {dataset.name} at level "
                f"{level} of {shift.name}, got {len(stored)} examples with other labels: a study "
                "compares the same examples at every level. falconcal.evaluate takes any."
            )
        stored.read(slice(1))
