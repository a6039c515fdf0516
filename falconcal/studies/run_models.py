"""The models of finished runs, each loaded once, and the weights that two of them share."""

from collections.abc import Iterable

import torch
from torch import nn

from falconcal.io.output_folder import RunKey
from falconcal.recalibration.calibrated_model import CalibratedModel
from falconcal.studies.run import StudyContext, load_run_model
from falconcal.studies.run_files import read_json


class RunModels:
    """The models of finished runs; a calibrated one has the base run's own module inside.

    Args:
        context: The study and its folder.
    """

    def __init__(self, context: StudyContext) -> None:
        self.context = context
        self.models: dict[RunKey, nn.Module] = {}
        self.by_title = {str(run): run for run in context.store.runs()}

    def of(self, run: RunKey) -> nn.Module:
        """Return the model of a run, loaded once."""
        if run not in self.models:
            model = self._load(run)
            base = self._base(run)
            if base is not None and isinstance(model, CalibratedModel):
                own = self.of(base)
                model.model = own if same_weights(own, model.model) else model.model
            self.models[run] = model
        return self.models[run]

    def of_all(self, runs: Iterable[RunKey]) -> dict[RunKey, nn.Module]:
        """Return the models of several runs."""
        return {run: self.of(run) for run in runs}

    def _load(self, run: RunKey) -> nn.Module:
        study = self.context.study.variant(run.variant)
        method = study.method(run.method, run.seed)
        return load_run_model(study, self.context.store, self.context.dataset, run, method)

    def _base(self, run: RunKey) -> RunKey | None:
        """Return the run whose model was calibrated, if it is still in the folder."""
        record = read_json(run.folder(self.context.store.directory) / "run.json")
        return self.by_title.get(str(record.get("base")))


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    """Return whether two models are of one kind and hold the same numbers."""
    states = first.state_dict(), second.state_dict()
    return (
        type(first) is type(second)
        and states[0].keys() == states[1].keys()
        and all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    )
