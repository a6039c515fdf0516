"""What all recalibration shares: the verb ``fit``, the fitted calibration, the wrapped model.

A calibrator brings two pure functions, ``learn`` (log-probabilities and labels to parameters) and
``apply`` (log-probabilities and parameters to log-probabilities); one that looks at more of an
example than its log-probabilities also brings an ``observer`` that makes features of it. Everything
is computed in float64. A probability below 2.2e-308, the smallest normal float64, counts as that on
the way in, so the log of 0 is -708.4; ``Predictions`` and the metrics floor what comes out in the
same way, and every likelihood is finite.
"""

import abc
from dataclasses import field
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from falconcal.core.batch import Batches
from falconcal.core.method import Base, build_untrained
from falconcal.core.module_state import check_module, without_wrapper
from falconcal.core.randomness import seeded_random
from falconcal.core.settings import Count, Fraction, settings
from falconcal.data import Examples, Part
from falconcal.errors import UserError
from falconcal.metrics.predictions import Data
from falconcal.models.predict import predict
from falconcal.recalibration.calibrated_model import (
    CalibratedModel,
    FittedCalibrator,
    Parameters,
    all_classes,
    calibration_beside,
    floored_log_probs,
)
from falconcal.recalibration.fitting import check_fit_labels, fit_on_copies, needed
from falconcal.recalibration.ladder import Ladder, Perturbed
from falconcal.recalibration.neighbours import Neighbours
from falconcal.recalibration.unit_range import StatedNormalisation, StatedRange

NameList = Annotated[tuple[str, ...], Field(strict=False)]


@settings
class Calibrator(abc.ABC):
    """Calibrate a fitted model on validation data; with a base, fit that first.

    Base class of all calibrators: a subclass brings ``learn`` and ``apply``.

    Example:
        >>> import falconcal
        >>> from falconcal.recalibration import Calibrator
        >>> isinstance(falconcal.Temperature(), Calibrator)
        True
    """

    parameter_names: ClassVar[tuple[str, ...]]  # of the parameters
    observes: ClassVar[bool] = False  # whether it looks at more of an example than its logits

    base: Base | None = None
    """The method that trains what is calibrated; None takes the model as it comes."""
    perturbed: Perturbed = field(default_factory=dict)
    """Families of shifts under which copies of the validation data are used for fitting too: names,
    a table of names and strengths (numbers, ``"spread"``, ``"matched"`` or ``{"accuracy": [0.9,
    0.5]}``), or ``"crafted"`` for those made for the kind of data. Empty fits on clean data
    alone."""
    outliers: NameList = ()
    """Sets of outliers to fit on too, by name."""
    clean_share: Fraction = 0.8
    """Fraction of the total weight that the clean copy has beside perturbed ones."""
    outlier_share: Fraction = 0.1
    """Fraction of the total weight that all outliers have together."""
    drifted_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Fraction of the total weight that a labelled sample of drifted data has, where ``fit`` is
    given one as ``drifted``."""
    drifted_examples: Count | None = None
    """Drifted examples that are fitted on, at most; None takes as many as ``fit_examples``. In a
    study only a calibrator that states it is fitted on drifted data."""
    leave_out: NameList = ()
    """Families and outliers that are never fitted on, as those that a study tests."""
    fit_examples: Count = 1000
    """Validation examples that are copied, at most."""
    check_families: bool = True
    """Whether the fit is repeated without some families, to say what to expect of others."""
    bounds: StatedRange = "data"
    """Lowest and highest value of the inputs, such as (0, 1); ``"data"`` takes what the data
    say."""
    normalisation: StatedNormalisation | None = None
    """Mean and deviation per channel that pixels from 0 to 1 were normalised by, if they were."""

    def fit(
        self,
        model: nn.Module,
        train: Batches | None = None,
        validation: Batches | None = None,
        *,
        drifted: Batches | Part | None = None,
        **options: Any,
    ) -> CalibratedModel:
        """Return the model wrapped with its calibration.

        Args:
            model: The network, logits out. With a base it is trained first.
            train: Training batches, for the base and for calibrators that store examples.
            validation: Labelled batches that did not train the model.
            drifted: Labelled batches, or a part, of data that has drifted, such as last month's.
            **options: What ``fit`` of the base takes besides, such as ``optimizer``.

        Returns:
            A module that gives normalised log-probabilities, in inference mode.

        Raises:
            UserError: If ``validation`` is missing, or ``train`` where the base needs it.
        """
        check_module(model)
        fitted = model = without_wrapper(model)
        if self.base is not None:
            base: Any = self.base  # a method of the user's own need not take options
            both = needed("train", train), needed("validation", validation)
            fitted = base.fit(model, *both, **options)
        elif options:
            raise UserError(f"fit takes {', '.join(options)} only with a base that is trained.")
        with seeded_random(0):  # iterating over a DataLoader draws from the caller's numbers
            if not self.ladder.is_clean_alone or self.observes or drifted is not None:
                validation = needed("validation", validation)
                return fit_on_copies(self, fitted, train, validation, drifted)
            predictions = predict(fitted, needed("validation", validation), single_process=True)
        calibration = self.fit_predictions(predictions)
        return CalibratedModel(fitted, calibration_beside(fitted, calibration)).eval()

    @property
    def ladder(self) -> Ladder:
        """Which copies of the validation data are fitted on."""
        seed: int = getattr(self, "seed", 0)
        return Ladder(
            self.perturbed,
            self.outliers,
            self.clean_share,
            self.outlier_share,
            self.leave_out,
            seed,
            self.drifted_share,
        )

    def observer(self, model: nn.Module, home: Examples) -> Neighbours | None:  # noqa: ARG002
        """Return what makes features of examples, from training examples ``home``, if it does."""
        return None

    def fit_predictions(self, predictions: Data) -> FittedCalibrator:
        """Return the calibration that these predictions and their labels ask for, on the CPU."""
        if self.observes:
            raise UserError(
                f"{type(self).__name__} looks at examples, not at predictions alone: call "
                "fit(model, train=..., validation=...)."
            )
        predictions = all_classes(predictions)
        check_fit_labels(predictions.labels)
        log_probs = floored_log_probs(predictions.log_probs.double().cpu())  # (N, C)
        return FittedCalibrator(self, self.learn(log_probs, predictions.labels.cpu()))

    def build(self, model: nn.Module) -> nn.Module:
        unfitted = {name: torch.empty(0, dtype=torch.float64) for name in self.parameter_names}
        inner = build_untrained(self.base, model)
        observer = Neighbours() if self.observes else None
        return CalibratedModel(inner, FittedCalibrator(self, unfitted), observer).eval()

    @abc.abstractmethod
    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        """Return the parameters: (N, C) float64 and finite, (N,) -> tensors by name.

        ``weights`` (N,) sum to 1; without them all examples count alike.
        """

    @abc.abstractmethod
    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        """Return calibrated log-probabilities, normalised: (N, C) -> (N, C)."""


def renormalised(probabilities: Tensor) -> Tensor:
    """Return log-probabilities of rows made to sum to 1, a row of zeros uniform: (N, C)."""
    total = probabilities.sum(1, keepdim=True)  # (N, 1)
    probabilities = torch.where(total > 0, probabilities, 1.0)
    return floored_log(probabilities / probabilities.sum(1, keepdim=True))


def floored_log(probabilities: Tensor) -> Tensor:
    # the floor comes before the log: after it, the gradient at 0 would be 0 times infinity
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def one_vs_rest(labels: Tensor, classes: int) -> Tensor:
    """Return for every class whether it is the true one: (N,) -> (C, N) of 0 and 1."""
    return nn.functional.one_hot(labels, classes).T.double()
