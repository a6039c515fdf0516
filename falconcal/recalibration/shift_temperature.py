"""Shift temperature: softmax(z / T(x)), a temperature that follows how far an example is from home.

One temperature cannot be right at home and far away. Here it depends on the example,
``T(x) = softplus(g(f(x))) + 0.05``: the features f are distances to stored training examples at
several stages of the network, as in density-aware calibration (Tomani, Waseda, Shen & Cremers, ICML
2023), and three numbers of the logits; g is fitted by likelihood on clean validation data and on
copies of it under crafted shifts (perturbed validation data: Tomani et al., CVPR 2021). The
predicted class never changes, and nothing is trained again.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from falconcal.core.settings import NonNegative, settings
from falconcal.data import Examples
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.ladder import Perturbed, input_form
from falconcal.recalibration.neighbour_calibrator import NeighbourCalibrator
from falconcal.recalibration.neighbours import Neighbours, in_blocks
from falconcal.recalibration.temperature_map import Form, fit_temperatures, temperatures


@settings
class ShiftTemperature(NeighbourCalibrator):
    """Divide the logits by a temperature that rises as an example gets stranger.

    For a model that is already trained, and after any method (``base=``). It needs validation data,
    and training data where there is some: without it a part of the validation data is stored
    instead, and never used for fitting. A prediction costs one pass of the model and the distances
    to the stored examples. The fitted model holds features of training examples, and coarse
    pictures of them where the inputs are images: keep it as private as the data.

    It is not right everywhere: a mild natural shift can be made timid, and the crafted shifts do
    not vouch for the drift of real sensors.

    Raises:
        UserError: Validation data are missing, or the range of the images is not known: give
            ``bounds`` or ``normalisation``.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> train, validation = data.train.batches(50), data.validation.batches(100)
        >>> model = method.fit(network, train, validation)
        >>> trusted = falconcal.ShiftTemperature(perturbed=["contrast", "wave"], stored=200)
        >>> trusted = trusted.fit(model, train=train, validation=validation)
        >>> print(trusted.fit_record.verdict()[-1])
        Real shifts that are unlike all of these were not tested.
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("weights",)

    perturbed: Perturbed = "crafted"
    """Families of shifts for the copies of the validation data, as any calibrator takes them; by
    default those made for the kind of data."""
    form: Form | Literal["auto"] = "auto"
    """What g is: ``monotone`` for images, signals and texts, ``linear`` for tables (``auto``
    chooses so), ``free`` or ``constant`` by name."""
    use_labels: bool | Literal["auto"] = "auto"
    """Whether the neighbours' labels count too; ``auto`` does so for tables alone."""
    use_logits: bool | Literal["auto"] = "auto"
    """Whether the logits count too; ``auto`` leaves them out for tables, where drift misleads
    them."""
    penalty: NonNegative = 1e-3
    """Weight of the sum of g's squared weights."""

    def observer(self, model: nn.Module, home: Examples) -> Neighbours:
        """Return the stored examples: those of ``home``, as the model's stages see them."""
        table = input_form(home.inputs) == "table"
        labels = table if self.use_labels == "auto" else self.use_labels
        logits = not table if self.use_logits == "auto" else self.use_logits
        return self.stored_home(model, home, k=self.neighbours, labels=labels, logits=logits)

    def learn(  # type: ignore[override]  # it is given features too
        self,
        log_probs: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        *,
        features: Tensor,
        rising: int,
    ) -> Parameters:
        if weights is None:
            weights = torch.full_like(labels, 1 / len(labels), dtype=torch.float64)
        found = fit_temperatures(
            log_probs,
            labels,
            weights,
            features,
            form=self._form(features, rising),
            rising=rising,
            penalty=self.penalty,
            seed=self.seed,
        )
        return {"weights": found}

    def _form(self, features: Tensor, rising: int) -> Form:
        if self.form != "auto":
            return self.form
        return "linear" if features.shape[1] == rising else "monotone"  # no logits: a table

    def apply(  # type: ignore[override]
        self, log_probs: Tensor, *, features: Tensor, weights: Tensor
    ) -> Tensor:
        heat = in_blocks(lambda rows: temperatures(weights, rows), features)  # (N,)
        return (log_probs / heat[:, None]).log_softmax(1)
