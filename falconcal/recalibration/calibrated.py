"""What all recalibration shares: the verb ``fit``, the fitted calibration, the wrapped model.

A calibrator brings two pure functions, ``learn`` (log-probabilities and labels to parameters) and
``apply`` (log-probabilities and parameters to log-probabilities). Everything is computed in
float64. A probability below 2.2e-308, the smallest normal float64, counts as that on the way in, so
the log of 0 is -708.4; ``Predictions`` and the metrics floor what comes out in the same way, and
every likelihood is finite.
"""

import abc
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from falconcal.data import Batches
from falconcal.errors import UserError
from falconcal.method import Base, structure_of
from falconcal.modes import check_module, seeded_random
from falconcal.predictions import LOWEST_LOG, Data, Predictions, as_record, predict
from falconcal.settings import settings

Parameters = dict[str, Tensor]


@settings
class Recalibration(abc.ABC):
    """Calibrate a fitted model on validation data; with a base, fit that first."""

    names: ClassVar[tuple[str, ...]]  # of the parameters

    base: Base | None = None  # the method that trains; None takes the model as it comes

    def fit(self, model: nn.Module, train: Batches | None, validation: Batches) -> nn.Module:
        """Return the model wrapped with its calibration; without a base ``train`` is not read."""
        check_module(model)
        fitted = model if self.base is None else self.base.fit(model, _given(train), validation)
        with seeded_random(0):  # walking through a DataLoader draws from the caller's numbers
            predictions = predict(fitted, validation, alone=True)
        calibration = self.fit_predictions(predictions)
        return Calibrated(fitted, _beside(fitted, calibration)).eval()

    def fit_predictions(self, predictions: Data) -> "Calibration":
        """Return the calibration that these predictions and their labels ask for, on the CPU."""
        predictions = all_classes(predictions)
        _check(predictions)
        log_probs = floored_log_probs(predictions.log_probs.double().cpu())  # (N, C)
        return Calibration(self, self.learn(log_probs, predictions.labels.cpu()))

    def structure(self, model: nn.Module) -> nn.Module:
        unfitted = {name: torch.empty(0, dtype=torch.float64) for name in self.names}
        return Calibrated(structure_of(self.base, model), Calibration(self, unfitted)).eval()

    @abc.abstractmethod
    def learn(self, log_probs: Tensor, labels: Tensor) -> Parameters:
        """Return the parameters: (N, C) float64 and finite, (N,) -> tensors by name."""

    @abc.abstractmethod
    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        """Return calibrated log-probabilities, normalised: (N, C) -> (N, C)."""


class Calibration(nn.Module):
    """A fitted calibration: logits in, normalised log-probabilities out; parameters are buffers."""

    def __init__(self, calibrator: Recalibration, parameters: Parameters) -> None:
        super().__init__()
        self.calibrator = calibrator
        for name in calibrator.names:
            self.register_buffer(name, parameters[name])
        register: Any = self.register_load_state_dict_pre_hook  # torch gives it no types
        register(_sized_as_stored)

    def forward(self, logits: Tensor) -> Tensor:  # (N, C) -> (N, C)
        parameters = dict(self.named_buffers())
        wide = logits.to(next(iter(parameters.values())).dtype)
        return self.calibrator.apply(floored_log_probs(wide), **parameters)

    def transform(self, predictions: Data) -> Predictions:
        """Return the predictions calibrated, their labels as they were."""
        predictions = all_classes(predictions)
        with torch.no_grad():
            return Predictions(self(predictions.log_probs), predictions.labels)


class Calibrated(nn.Module):
    """A model and its calibration: inputs in, normalised log-probabilities out."""

    def __init__(self, model: nn.Module, calibration: Calibration) -> None:
        super().__init__()
        self.model, self.calibration = model, calibration

    def forward(self, inputs: Tensor) -> Tensor:  # (N, ...) -> (N, C)
        log_probs: Tensor = self.calibration(self.model(inputs))
        return log_probs


def all_classes(data: Data) -> Predictions:
    """Return predictions; scores, which have lost their probabilities, are refused."""
    record = as_record(data)
    if not isinstance(record, Predictions):
        raise UserError(
            f"calibration needs the probabilities of all classes, got {type(data).__name__}: keep "
            "the Predictions."
        )
    return record


def floored_log_probs(logits: Tensor) -> Tensor:
    return logits.log_softmax(1).clamp_min(LOWEST_LOG)  # (N, C)


def renormalised(probabilities: Tensor) -> Tensor:
    """Return log-probabilities of rows made to sum to 1, a row of zeros uniform: (N, C)."""
    total = probabilities.sum(1, keepdim=True)  # (N, 1)
    probabilities = torch.where(total > 0, probabilities, 1.0)
    return floored_log(probabilities / probabilities.sum(1, keepdim=True))


def floored_log(probabilities: Tensor) -> Tensor:
    # the floor comes before the log: after it, the gradient at 0 would be 0 times infinity
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def against_the_rest(labels: Tensor, classes: int) -> Tensor:
    """Return for every class whether it is the true one: (N,) -> (C, N) of 0 and 1."""
    return nn.functional.one_hot(labels, classes).T.double()


def _sized_as_stored(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Give buffers the sizes of the stored ones: how many there are is known by fitting alone."""
    for name, buffer in module.named_buffers(recurse=False):
        stored = state.get(prefix + name)
        if stored is not None:
            module.register_buffer(name, torch.empty_like(stored, device=buffer.device))


def _beside(model: nn.Module, calibration: Calibration) -> Calibration:
    """Return the calibration where the model is, in float32 where there is no float64."""
    device = next(model.parameters(), torch.empty(0)).device
    return calibration.to(device, torch.float32 if device.type == "mps" else torch.float64)


def _given(train: Batches | None) -> Batches:
    if train is None:
        raise UserError("expected training batches for the base method, got None.")
    return train


def _check(predictions: Predictions) -> None:
    """Refuse what no calibration can be learned from."""
    labels = predictions.labels
    if len(labels) == 0:
        raise UserError("expected validation examples to calibrate on, got none.")
    if (labels < 0).any():
        raise UserError(
            "calibration needs the true class of every validation example, got "
            f"{int((labels < 0).sum())} labels of -1: leave these examples out."
        )
    if (labels == labels[0]).all():
        raise UserError(
            f"expected validation examples of at least 2 classes, got class {int(labels[0])} "
            "alone: calibrate on data that holds several."
        )
