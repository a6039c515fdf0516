"""Several models on the same batch, with what their passes have in common computed once.

Calibrated models around one network need one pass of it, and those that compare stages with the
same stored examples need one set of distances. What comes out is the same to the bit as each
model's own forward pass.
"""

from collections.abc import Iterable
from typing import TypeGuard

from torch import Tensor, nn

from falconcal.core.model_inputs import Inputs
from falconcal.recalibration.calibrated_model import CalibratedModel
from falconcal.recalibration.neighbours import Neighbours
from falconcal.recalibration.stages import Outputs, observe


def network_of(model: nn.Module) -> nn.Module:
    """Return the network inside all calibrations of a model; another model is its own network."""
    while is_calibrated(model):
        model = model.model
    return model


def is_calibrated(model: nn.Module) -> TypeGuard[CalibratedModel]:
    """Return whether a model's forward pass is known to be its network's and a calibration."""
    return type(model) is CalibratedModel  # a subclass may have a forward pass of its own


class SharedWork:
    """What several models have in common: stages of a network, stored examples.

    Args:
        models: The models that will see the same batches.
    """

    def __init__(self, models: Iterable[nn.Module]) -> None:
        self.stages: dict[nn.Module, tuple[str, ...]] = {}  # of a network, for all around it
        self.firsts: dict[Neighbours, Neighbours] = {}  # the first that stores the same examples
        for model in models:
            while is_calibrated(model):
                self._note(model)
                model = model.model

    def _note(self, model: CalibratedModel) -> None:
        known = self.stages.get(model.model, ())
        self.stages[model.model] = tuple(dict.fromkeys((*known, *model.stages)))
        observer = model.observer
        if observer is not None and observer not in self.firsts:
            found = (one for one in self.firsts.values() if observer.stores_the_same_as(one))
            self.firsts[observer] = next(found, observer)

    def batch(self) -> "SharedPass":
        """Return what computes the models on one batch."""
        return SharedPass(self)


class SharedPass:
    """The passes of several models on one batch; the first that needs something computes it.

    Args:
        work: What the models have in common.
    """

    def __init__(self, work: SharedWork) -> None:
        self.work = work
        self.passes: dict[nn.Module, tuple[Tensor, Outputs]] = {}
        self.features: dict[tuple[nn.Module, Neighbours], Tensor] = {}

    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """Return ``model(inputs)``; the inputs must be the same in every call."""
        if not is_calibrated(model):
            return self._pass(model, inputs)[0]
        logits, outputs = self._pass(model.model, inputs)
        return model.from_pass(logits, outputs, self._features(model, logits, outputs))

    def _pass(self, network: nn.Module, inputs: Inputs) -> tuple[Tensor, Outputs]:
        if network not in self.passes:
            stages = self.work.stages.get(network, ())
            if is_calibrated(network) and not stages:
                self.passes[network] = self.output(network, inputs), {}
            else:  # only its own pass shows what its stages give out
                self.passes[network] = observe(network, inputs, stages)
        return self.passes[network]

    def _features(self, model: CalibratedModel, logits: Tensor, outputs: Outputs) -> Tensor | None:
        if model.observer is None:
            return None
        observer = self.work.firsts[model.observer]
        key = model.model, observer
        if key not in self.features:
            self.features[key] = observer.features_of_pass(logits, outputs)
        return self.features[key]
