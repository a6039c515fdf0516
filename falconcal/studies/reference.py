"""The reference model, through which validation data is perturbed for all runs alike.

It is the study's dropout model of seed 0, its last epoch, trained at most once a folder: as a run
before the others, or, where the study keeps the last epoch of dropout anyway, as that run.
"""

import dataclasses
from pathlib import Path

from torch import nn

from falconcal import processes
from falconcal.data import AT_ONCE, Dataset
from falconcal.layout import PLAIN, REFERENCE_VARIANT, WEIGHTS, RunKey
from falconcal.method import Method, chooses_epoch
from falconcal.studies.making import model_of, train
from falconcal.studies.store import Store, load_weights, save_weights, whole
from falconcal.studies.study import REFERENCE, Study
from falconcal.training.preparing import lay_out_weights

OWN_RUN = RunKey(REFERENCE_VARIANT, REFERENCE, 0)
PLAIN_RUN = RunKey(PLAIN, REFERENCE, 0)


def reference_run(study: Study) -> RunKey:
    """Return the run that trains the reference."""
    return OWN_RUN if chooses_epoch(study.method(REFERENCE)) else PLAIN_RUN


def reference_method(study: Study) -> Method:
    settings = {**study.methods[REFERENCE], "keep": "last"}
    settings.pop("patience", None)
    return dataclasses.replace(study, methods={REFERENCE: settings}).method(REFERENCE)


def find_reference(study: Study, store: Store) -> Path | None:
    """Return the file of the reference's weights, if it is trained."""
    if REFERENCE not in study.methods:
        return None  # no epoch is chosen in such a study
    own = store.directory / "reference" / WEIGHTS
    plain = PLAIN_RUN.folder(store.directory) / WEIGHTS
    files = [own] if reference_run(study) == OWN_RUN else [plain, own]
    return next((file for file in files if whole(file)), None)


def make_reference(
    study: Study, store: Store, dataset: Dataset, method: Method | None = None
) -> None:
    """Train the reference, by the study's method if none is given, and keep it in the folder."""
    plain = dataset.validation.batches(AT_ONCE)
    with store.checkpointing(OWN_RUN):
        model = train(study, dataset, 0, method or reference_method(study), plain)
    if processes.first():
        save_weights(store.directory / "reference" / WEIGHTS, model)
    processes.wait()
    store.drop_checkpoint(OWN_RUN)


def load_reference(
    study: Study, store: Store, dataset: Dataset, method: Method | None = None
) -> nn.Module:
    """Return the reference from its file, trained if it is not there: it is the same either way."""
    if find_reference(study, store) is None:
        make_reference(study, store, dataset, method)
    file = find_reference(study, store)
    assert file is not None
    model = load_weights(file, model_of(study, dataset))
    lay_out_weights(model)  # as training does: other orders in memory round differently
    return model
