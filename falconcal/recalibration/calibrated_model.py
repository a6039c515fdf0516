"""A fitted calibration, and a model that carries one."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import packed
from falconcal.errors import UserError
from falconcal.metrics.predictions import LOWEST_LOG, Data, Predictions, as_record
from falconcal.recalibration.buffers import size_buffers_as_stored
from falconcal.recalibration.fit_record import FitRecord
from falconcal.recalibration.neighbours import Neighbours
from falconcal.recalibration.stages import Outputs, observe

if TYPE_CHECKING:
    from falconcal.recalibration.calibrator import Calibrator

Parameters = dict[str, Tensor]


class FittedCalibrator(nn.Module):
    """A fitted calibration: logits in, normalised log-probabilities out.

    Args:
        calibrator: The settings, with ``apply``.
        parameters: What ``learn`` returned; they become buffers.

    Example:
        >>> import torch
        >>> from falconcal.recalibration import FittedCalibrator, Temperature
        >>> fitted = FittedCalibrator(Temperature(), {"temperature": torch.tensor(2.0).double()})
        >>> fitted(torch.tensor([[2.0, 0.0]])).exp()  # softmax of [1, 0]
        tensor([[0.7311, 0.2689]], dtype=torch.float64)
    """

    def __init__(self, calibrator: "Calibrator", parameters: Parameters) -> None:
        super().__init__()
        self.calibrator = calibrator
        for name in calibrator.parameter_names:
            self.register_buffer(name, parameters[name])
        size_buffers_as_stored(self)

    def forward(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        """Return log-probabilities, (N, C) -> (N, C), of features (N, F) where they count."""
        parameters = dict(self.named_buffers())
        wide = logits.to(next(iter(parameters.values())).dtype)
        if features is not None:
            parameters["features"] = features.to(wide)
        return self.calibrator.apply(floored_log_probs(wide), **parameters)

    def transform(self, predictions: Data) -> Predictions:
        """Return the predictions calibrated, their labels as they were."""
        predictions = all_classes(predictions)
        with torch.no_grad():
            return Predictions(self(predictions.log_probs), predictions.labels)


class CalibratedModel(nn.Module):
    """A model and its calibration: inputs in, normalised log-probabilities out.

    Args:
        model: The network, logits out.
        calibration: What is done to its logits.
        observer: What makes features of an example, for calibrators that look at more than logits.

    Example:
        >>> import torch
        >>> from falconcal.recalibration import CalibratedModel, FittedCalibrator, Temperature
        >>> fitted = FittedCalibrator(Temperature(), {"temperature": torch.tensor(2.0).double()})
        >>> model = CalibratedModel(torch.nn.Identity(), fitted)
        >>> model(torch.tensor([[2.0, 0.0]])).exp()
        tensor([[0.7311, 0.2689]], dtype=torch.float64)
    """

    def __init__(
        self, model: nn.Module, calibration: FittedCalibrator, observer: Neighbours | None = None
    ) -> None:
        super().__init__()
        self.model, self.calibration, self.observer = model, calibration, observer
        self.fit_record: FitRecord | None = None  # what the fit did, in words: print it

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the network that the calibration looks at."""
        return () if self.observer is None else self.observer.layout.stages

    def forward(self, *inputs: Any, **named: Any) -> Tensor:  # (N, ...) -> (N, C)
        return self.from_pass(*observe(self.model, packed(inputs, named), self.stages))

    def from_pass(self, logits: Tensor, outputs: Outputs, features: Tensor | None = None) -> Tensor:
        """Return log-probabilities of a pass of the network that has been made: (N, C) -> (N, C).

        Args:
            logits: The network's logits.
            outputs: What its stages gave out by name, at least those of ``stages``.
            features: The observer's features, not standardised, if they are known already.

        Returns:
            What the model gives for the inputs of the pass, to the bit.
        """
        if self.observer is None:
            log_probs: Tensor = self.calibration(logits)
            return log_probs
        if features is None:
            features = self.observer.features_of_pass(logits, outputs)
        calibrated: Tensor = self.calibration(logits, self.observer.standardised(features))
        return calibrated


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


def calibration_beside(model: nn.Module, calibration: FittedCalibrator) -> FittedCalibrator:
    """Return the calibration where the model is, in float32 where there is no float64."""
    device = next(model.parameters(), torch.empty(0)).device
    return calibration.to(device, torch.float32 if device.type == "mps" else torch.float64)
