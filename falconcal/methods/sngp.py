"""SNGP: a network that keeps distances, and a Gaussian process in the place of its last layer.

Liu, Lin, Padhy, Tran, Bedrax-Weiss & Lakshminarayanan, "Simple and Principled Uncertainty
Estimation with Deterministic Deep Learning via Distance Awareness", NeurIPS 2020. The weights of
dense and convolution layers are scaled down in each step to a spectral norm of at most a bound. The
head: ``Phi(h) = sqrt(2 / D) cos(-W h + b)``, W and b drawn once, logits ``beta' Phi``. After
training, one pass over the training data gives the precision ``I + sum p (1 - p) Phi Phi'``, p the
confidence, and its inverse Sigma; a prediction is ``z / sqrt(1 + pi / 8 Phi' Sigma Phi)``.

W has the scale 1 / (length scale * sqrt(width of h)), so that one length scale serves networks of
any width. While it trains, and where Sigma is 0, the logits are the plain ones.
"""

import math
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from falconcal.core.batch import checked_batches
from falconcal.core.layout import to_model_device
from falconcal.core.model_inputs import call_model, packed
from falconcal.core.module_state import inference_mode_of
from falconcal.core.randomness import seeded_random
from falconcal.core.settings import Count, PositiveNumber, settings
from falconcal.data import Batches
from falconcal.models.bayesian.conversion import with_last_layer
from falconcal.training import Objective, Step, TrainingMethod, adam, clean_terms
from falconcal.training.recipe import TrainingOptions

POWER_ITERATIONS = 1  # of the power method per step; its vector is kept between steps


@settings
class SNGP(TrainingMethod):
    """Train a network whose confidence falls with the distance from the training data.

    Needs an ``nn.Linear`` layer at the end. A step costs about as much as a plain one, a prediction
    a little more. The model that is given stays as it was.

    Raises:
        UserError: If the model has no ``nn.Linear``, or none of the name ``layer``.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.SNGP(epochs=5, learning_rate=0.01, features=256)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    features: Count = 1024
    """Number D of random features."""
    norm_bound: PositiveNumber = 6.0
    """Highest spectral norm of a layer's weights; lower keeps distances better and learns less."""
    length_scale: PositiveNumber = 1.0
    """Distance at which two examples differ, in root mean squares of the last features."""
    layer: str | None = None
    """Name of the last layer in the model; None takes the ``nn.Linear`` that is defined last."""

    def build(self, model: nn.Module) -> nn.Module:
        with seeded_random(self.seed):
            make = partial(RandomFeatureHead, features=self.features, scale=self.length_scale)
            return SNGPModel(with_last_layer(model, {nn.Linear: make}, self.layer))

    def objectives(self) -> list[Objective]:
        return [Objective("clean", partial(sngp_terms, self), adam(self))]

    def fit(
        self,
        model: nn.Module,
        train: Batches,
        validation: Batches | None = None,
        **options: Unpack[TrainingOptions],
    ) -> nn.Module:
        """Train as any method does, then find the covariance in one pass over the training data."""
        fitted = super().fit(model, train, validation, **options)
        assert isinstance(fitted, SNGPModel)
        with seeded_random(self.seed):  # iterating over a DataLoader draws from the caller's
            find_covariance(fitted, train)
        return fitted


def sngp_terms(method: SNGP, step: Step) -> dict[str, Tensor]:
    """Return the plain terms, after the weights were scaled down to the bound."""
    model = step.unwrapped
    assert isinstance(model, SNGPModel)
    model.bound_norms(method.norm_bound)
    return clean_terms(method, step)


class RandomFeatureHead(nn.Module):
    """Random features of what a last layer is given, and a linear layer on them.

    In training mode it gives ``beta' Phi``, else these logits less sure by their variance.
    """

    directions: Tensor  # W, (D, width)
    offsets: Tensor  # b, (D,)
    covariance: Tensor  # Sigma, (D, D); 0 before it is known

    def __init__(self, last: nn.Linear, features: int, scale: float) -> None:
        super().__init__()
        weight = last.weight
        spread = scale * math.sqrt(last.in_features)
        drawn = torch.randn(features, last.in_features) / spread, 2 * math.pi * torch.rand(features)
        for name, value in zip(("directions", "offsets"), drawn, strict=True):
            self.register_buffer(name, value.to(weight))
        self.register_buffer("covariance", weight.new_zeros(features, features))
        self.output = nn.Linear(features, last.out_features, bias=False).to(weight)
        self.training = last.training

    def features(self, inputs: Tensor) -> Tensor:
        """Return Phi: (N, width) -> (N, D)."""
        angles = self.offsets - inputs @ self.directions.T
        return math.sqrt(2 / len(self.offsets)) * angles.cos()

    def variance(self, features: Tensor) -> Tensor:
        """Return Phi' Sigma Phi: (N, D) -> (N,)."""
        return ((features @ self.covariance) * features).sum(-1)

    def forward(self, inputs: Tensor) -> Tensor:  # (N, width) -> (N, C)
        features = self.features(inputs)
        logits: Tensor = self.output(features)
        if self.training:
            return logits
        return logits / (1 + math.pi / 8 * self.variance(features)).sqrt()[..., None]


class SNGPModel(nn.Module):
    """A network with such a head; it keeps the vectors of the power method, one per layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = model.training  # else all submodules would count as held in the other mode
        for number, layer in enumerate(self._bounded()):
            rows = layer.weight.flatten(1).shape[0]
            start = torch.randn(rows).to(layer.weight)
            self.register_buffer(f"vector_{number}", start / start.norm())

    def forward(self, *inputs: Any, **named: Any) -> Tensor:  # (N, ...) -> (N, C)
        return call_model(self.model, packed(inputs, named))

    @property
    def head(self) -> RandomFeatureHead:
        return next(part for part in self.modules() if isinstance(part, RandomFeatureHead))

    def _bounded(self) -> list[nn.Linear | nn.Conv2d]:
        """Return the layers whose norm is bounded: all dense and convolution layers but beta."""
        layers = [part for part in self.model.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
        outputs = {id(self.head.output)}
        return [layer for layer in layers if id(layer) not in outputs]

    @torch.no_grad()
    def bound_norms(self, bound: float) -> None:
        """Scale weights down whose spectral norm, by the power method, is above the bound."""
        for number, layer in enumerate(self._bounded()):
            matrix = layer.weight.flatten(1)  # (rows, columns)
            vector = self.get_buffer(f"vector_{number}")
            for _ in range(POWER_ITERATIONS):
                other = nn.functional.normalize(matrix.T @ vector, dim=0)
                vector.copy_(nn.functional.normalize(matrix @ other, dim=0))
            norm = (vector @ (matrix @ other)).clamp_min(torch.finfo(matrix.dtype).tiny)
            layer.weight.mul_((bound / norm).clamp_max(1.0))


@torch.no_grad()
def find_covariance(model: SNGPModel, train: Batches) -> None:
    """Set the covariance of the head: the inverse of I + sum p (1 - p) Phi Phi'."""
    head = model.head
    size = len(head.offsets)
    precision = torch.eye(size, dtype=torch.float64, device=head.offsets.device)
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        with inference_mode_of(model):
            for inputs, _ in checked_batches(train):
                call_model(model, to_model_device(model, inputs))
                features = head.features(seen.pop()).reshape(-1, size)
                sure = head.output(features).softmax(-1).amax(-1)
                precision += (
                    features.double().T @ ((sure * (1 - sure))[:, None] * features).double()
                )
    finally:
        handle.remove()
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(precision))
    head.covariance.copy_(inverse.to(head.covariance))
