"""A temperature for each example: ``T(x) = softplus(g(f(x))) + 0.05`` of its features f.

``g`` has one of four forms. ``constant``: one number, which is plain temperature scaling.
``linear``: a weighted sum. ``monotone``: a network of 16 tanh units beside a weighted sum, without
which the temperature of examples beyond all copies would not rise any more; it can only rise with a
distance, since the weights on distances and the units' outer weights are held at 0 or above, and it
is free on the logits. ``free``: the same without that constraint. Fitted by weighted
likelihood with a small L2 penalty, by L-BFGS-B in float64.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.recalibration.convex import NETWORK_ITERATIONS, minimise
from falconcal.recalibration.fit_losses import weighted_nll

Form = Literal["constant", "linear", "monotone", "free"]
UNITS = 16
LOWEST_TEMPERATURE = 0.05


def weight_count(form: Form, features: int) -> int:
    """Return how many numbers g has."""
    units = 0 if form in ("constant", "linear") else UNITS * (features + 2)
    return units + (0 if form == "constant" else features) + 1


def raw_temperature(weights: Tensor, features: Tensor) -> Tensor:
    """Return g of the features, (N, F) -> (N,); how many weights there are says its form."""
    width = features.shape[1]
    offset = weights[-1]
    if len(weights) == weight_count("constant", width):
        return offset.expand(len(features))
    straight = features @ weights[-1 - width : -1] + offset
    if len(weights) == weight_count("linear", width):
        return straight
    inner, bias, outer = _units(weights, width)
    return torch.tanh(features @ inner.T + bias) @ outer + straight


def _units(weights: Tensor, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return inner weights (UNITS, F), biases and outer weights (UNITS,)."""
    table = weights[: UNITS * (features + 2)].reshape(UNITS, features + 2)
    return table[:, :features], table[:, features], table[:, features + 1]


def temperatures(weights: Tensor, features: Tensor) -> Tensor:
    """Return the temperature of each example: (N, F) -> (N,)."""
    return functional.softplus(raw_temperature(weights, features)) + LOWEST_TEMPERATURE


def fit_temperatures(
    log_probs: Tensor,
    labels: Tensor,
    weights: Tensor,
    features: Tensor,
    *,
    form: Form,
    rising: int,
    penalty: float,
    seed: int,
) -> Tensor:
    """Return the weights of g: (N, C), (N,), (N,) of sum 1, (N, F) -> (W,), all float64.

    The first ``rising`` features are those that can only raise the temperature.
    """

    def loss(values: Tensor) -> Tensor:
        heat = temperatures(values, features)[:, None]  # (N, 1)
        nll = weighted_nll((log_probs / heat).log_softmax(1), labels, weights)
        return nll + penalty * values[:-1].square().sum()

    width = features.shape[1]
    start, lowest = _start(form, width, seed), lowest_weights(form, width, rising)
    return minimise(loss, torch.maximum(start, lowest), NETWORK_ITERATIONS, lowest)


def _start(form: Form, features: int, seed: int) -> Tensor:
    """Return small random weights, and the offset of temperature 1."""
    generator = torch.Generator().manual_seed(seed)
    start = 0.3 * torch.randn(
        weight_count(form, features), generator=generator, dtype=torch.float64
    )
    start[-1 - features :] = 0.0
    start[-1] = math.log(math.expm1(1 - LOWEST_TEMPERATURE))
    return start


def lowest_weights(form: Form, features: int, rising: int) -> Tensor:
    """Return the lowest value that each weight may have: (W,)."""
    lowest = torch.full((weight_count(form, features),), -math.inf, dtype=torch.float64)
    if form == "monotone":
        inner, _, outer = _units(lowest, features)
        inner[:, :rising] = 0.0
        outer[:] = 0.0
        lowest[UNITS * (features + 2) :][:rising] = 0.0  # of the weighted sum
    return lowest
