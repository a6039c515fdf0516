"""Build what a study names: its dataset, its network, and a network trained on the data."""

from collections.abc import Iterable

import torch
from torch import nn

from falconcal.core.method import Method
from falconcal.core.registry import name_and_settings
from falconcal.data import Batches, Dataset, load_named, subset_all_parts, subset_test
from falconcal.errors import UserError
from falconcal.models import make_named
from falconcal.recalibration.calibrator import Calibrator
from falconcal.shifts import AnyShift, Outliers, Shift, StoredShift, shift_context
from falconcal.studies.study import Study
from falconcal.training.criterion import (
    CRITERIA,
    MATCHED_STEPS,
    ShiftedValidation,
    examples_to_judge,
    shifted_validation,
)


def load_study_dataset(study: Study) -> Dataset:
    """Load the dataset of a study, with as many examples as the study says."""
    name, settings = name_and_settings("dataset", study.dataset)
    dataset = load_named(name, settings, study.trust)
    if study.examples is not None:
        dataset = subset_all_parts(dataset, study.examples)
    return subset_test(dataset, study.test_examples)


def make_study_model(study: Study, dataset: Dataset, seed: int = 0) -> nn.Module:
    """Make the untrained network of a study; the seed decides its weights."""
    name, settings = name_and_settings("model", study.model)
    return make_named(name, settings, dataset, seed, study.trust)


def train_method(
    study: Study, dataset: Dataset, seed: int, method: Method, validation: Batches
) -> nn.Module:
    """Train a method on a study's network and data, all with one seed."""
    model = make_study_model(study, dataset, seed)
    train = dataset.training_batches(study.batch_size, seed)
    return fit_with_drifted(study, dataset, method, model, train, validation)


def fit_with_drifted(
    study: Study,
    dataset: Dataset,
    method: Method,
    model: nn.Module,
    train: Batches,
    validation: Batches,
) -> nn.Module:
    """Fit a method, a calibrator that asks for it also on the study's drifted sample."""
    if not isinstance(method, Calibrator) or method.drifted_examples is None:
        return method.fit(model, train, validation)
    drifted = study.own_drift.sample(dataset.test)
    return method.fit(model, train, validation, drifted=drifted)


def study_validation(
    study: Study, dataset: Dataset, reference: nn.Module, examples: int | None = None
) -> ShiftedValidation:
    """Return validation data with the families of the study's criterion, made once.

    ``examples`` overrules how many of them judge; a study that does not say so either judges an
    epoch at about a tenth of what training it costs.
    """
    criterion = CRITERIA[study.criterion_name]
    shifts = study.criterion_shifts(dataset.modality)
    examples = examples or study.selection_examples
    if examples is None and criterion.matched:
        examples = examples_to_judge(1 + MATCHED_STEPS * len(shifts), len(dataset.train))
    return shifted_validation(dataset.validation, reference, shifts, examples, criterion)


def check_shifts(study: Study, dataset: Dataset) -> None:
    """Apply each shift to one example, so that one that does not fit fails before training."""
    check_tests(study, dataset, study.all_shifts(), study.all_outliers())


def check_tests(
    study: Study, dataset: Dataset, shifts: Iterable[AnyShift], outliers: Iterable[Outliers]
) -> None:
    """Apply these shifts to one example each, and make one outlier of each set."""
    one, shifts = dataset.test.first(1), list(shifts)
    needed = any(isinstance(shift, Shift) and "model" in shift.needs for shift in shifts)
    model = make_study_model(study, dataset) if needed else None
    for shift in shifts:
        if isinstance(shift, StoredShift):
            _check_stored(shift, dataset)
        else:
            shift.at(one.inputs, shift.levels[-1], **shift_context(one, 0, one.labels, model))
    for outside in outliers:
        next(outside.batches(dataset.test, 1))


def _check_stored(shift: StoredShift, dataset: Dataset) -> None:
    """Refuse a stored shift that does not hold all test examples in their order."""
    for level in shift.levels[1:]:
        stored = shift.level(level, dataset.test)
        if not shift.own_examples and not torch.equal(stored.labels, dataset.test.labels):
            raise UserError(
                f"expected the {len(dataset.test)} test examples of {dataset.name} at level "
                f"{level} of {shift.name}, got {len(stored)} examples with other labels: a study "
                "compares the same examples at every level. falconcal.evaluate takes any."
            )
        stored.read(slice(1))
