"""The reference model, which perturbs the validation data in the same way for all runs.

It is the study's dropout model, seed 0, last epoch, trained at most once per folder: as a run
before the others, or as the run of dropout itself where the study keeps its last epoch anyway.
Where the run of dropout keeps its best epoch, it judges the epochs of that one training.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from falconcal.core import distributed
from falconcal.core.layout import prefer_channels_last
from falconcal.core.method import Method, chooses_epoch
from falconcal.data import PREDICTION_BATCH_SIZE, Dataset
from falconcal.io.output_folder import DEFAULT_VARIANT, REFERENCE_VARIANT, WEIGHTS_FILE, RunKey
from falconcal.studies.building import make_study_model, train_method
from falconcal.studies.held_epochs import HeldEpochs
from falconcal.studies.run_files import is_whole, load_weights, save_weights
from falconcal.studies.stopwatch import Stopwatch
from falconcal.studies.store import Store
from falconcal.studies.study import Study
from falconcal.studies.study_checks import REFERENCE_METHOD
from falconcal.training import History, TrainingMethod
from falconcal.training.history import on_weights

REFERENCE_RUN = RunKey(REFERENCE_VARIANT, REFERENCE_METHOD, 0)
PLAIN_RUN = RunKey(DEFAULT_VARIANT, REFERENCE_METHOD, 0)


def reference_run(study: Study) -> RunKey:
    """Return the run that trains the reference."""
    return REFERENCE_RUN if chooses_epoch(study.method(REFERENCE_METHOD)) else PLAIN_RUN


def reference_method(study: Study) -> Method:
    settings = {**study.methods[REFERENCE_METHOD], "keep": "last"}
    settings.pop("patience", None)
    return dataclasses.replace(study, methods={REFERENCE_METHOD: settings}).method(REFERENCE_METHOD)


def find_reference(study: Study, store: Store) -> Path | None:
    """Return the file of the reference's weights, if it is trained."""
    if REFERENCE_METHOD not in study.methods:
        return None  # such a study does not choose epochs
    own = store.directory / "reference" / WEIGHTS_FILE
    plain = PLAIN_RUN.folder(store.directory) / WEIGHTS_FILE
    files = [own] if reference_run(study) == REFERENCE_RUN else [plain, own]
    return next((file for file in files if is_whole(file)), None)


def make_reference(
    study: Study, store: Store, dataset: Dataset, method: Method | None = None
) -> None:
    """Train the reference, with the study's method unless another is given, and store it."""
    plain = dataset.validation.batches(PREDICTION_BATCH_SIZE)
    held = None if method is not None else held_epochs(study, store)
    with store.checkpointing(REFERENCE_RUN), _holding(held, store.has_checkpoint(REFERENCE_RUN)):
        model = train_method(study, dataset, 0, method or reference_method(study), plain)
    if distributed.is_first_process():
        save_weights(store.directory / "reference" / WEIGHTS_FILE, model)
    distributed.barrier()
    store.drop_checkpoint(REFERENCE_RUN)


def held_epochs(study: Study, store: Store) -> HeldEpochs | None:
    """Return where epochs are held for the run of dropout, if that is the reference's training."""
    method = study.method(REFERENCE_METHOD)
    if not isinstance(method, TrainingMethod) or distributed.world_size() > 1:
        return None
    shared = method.keep == "best" and method.patience is None  # patience may end it earlier
    # judged afterwards as in training: weights of the same type, in one process
    alike = method.precision == "32-true" and method.devices == method.num_nodes == 1
    return HeldEpochs(store.held_folder, method.epochs) if shared and alike else None


@contextmanager
def _holding(held: HeldEpochs | None, resumed: bool) -> Iterator[None]:
    """Hold the epochs of the training inside, and what was recorded of it."""
    if held is None:
        yield
        return
    if not resumed:
        held.begin()
    watch, history = Stopwatch(), History()
    with history.recording(), on_weights(held.hold):
        yield
    held.end(history, watch.read("training"))


def load_reference(
    study: Study, store: Store, dataset: Dataset, method: Method | None = None
) -> nn.Module:
    """Return the reference from its file; train it first if there is no file."""
    if find_reference(study, store) is None:
        make_reference(study, store, dataset, method)
    file = find_reference(study, store)
    assert file is not None
    model = load_weights(file, make_study_model(study, dataset))
    # as in training: the memory layout changes rounding
    prefer_channels_last(model, dataset.validation.head(2).inputs)
    return model
