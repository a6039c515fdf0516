"""Scaling-binning, the verified uncertainty calibration: scale first, then bin what was scaled.

Kumar, Liang & Ma, "Verified Uncertainty Calibration", NeurIPS 2019, section 4. Three disjoint parts
of the validation data: the first fits a function g, the second chooses bins of equal mass of g(p),
the third gives each bin the mean of g(p) in it (the mean of labels would be histogram binning).

``top_label``: g is temperature scaling; only the winning probability is replaced, the others share
the remainder in proportion, and the predicted class stays. ``marginal``: g is Platt scaling of one
class against the rest, then renormalised; the predicted class may change.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.core.settings import Count, Seed, settings
from falconcal.errors import UserError
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import (
    Calibrator,
    floored_log,
    one_vs_rest,
    renormalised,
)
from falconcal.recalibration.convex import minimise
from falconcal.recalibration.histogram_binning import (
    bin_means,
    bin_of_probability,
    mass_edges,
    middles,
)
from falconcal.recalibration.temperature import best_temperature

TOP_LEAD = 1e-6  # by which the predicted class stays ahead of the next
EXTREME = 36.0  # log-odds beyond which float64 cannot tell a probability from 1


@settings
class ScalingBinning(Calibrator):
    """Scaling-binning: temperature or Platt scaling, then binned, from validation data.

    Raises:
        UserError: There are fewer than three validation examples per bin.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.ScalingBinning()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    # (1,), or (2, C): slope and offset; then bins of the top label, or of every class
    parameter_names: ClassVar[tuple[str, ...]] = ("scaling", "edges", "values")

    kind: Literal["top_label", "marginal"] = "top_label"
    """``top_label`` replaces the winning probability alone and keeps the predicted class;
    ``marginal`` treats every class, and may change it."""
    bins: Count = 10
    """Number of bins."""
    seed: Seed = 0
    """Seed of the draw of the three parts."""

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        first, second, third = three_parts(len(labels), self.bins, self.seed)
        fit, scaled = SCALINGS[self.kind]
        own = [_shares(weights, part) for part in (first, second, third)]
        scaling = fit(log_probs[first], labels[first], own[0])
        masses, means = scaled(log_probs[second], scaling), scaled(log_probs[third], scaling)
        edges = mass_edges(masses, self.bins, own[1])
        # a bin that the third part misses is filled from the second, which made it
        spare = bin_means(masses, edges, masses, middles(edges), own[1])
        values = bin_means(means, edges, means, spare, own[2])
        return {"scaling": scaling, "edges": edges, "values": values}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        _, scaled = SCALINGS[self.kind]
        scores = scaled(log_probs, parameters["scaling"])  # (1, N) or (C, N)
        binned = parameters["values"].gather(1, bin_of_probability(scores, parameters["edges"]))
        if self.kind == "marginal":
            return renormalised(binned.T)
        return with_top_probability(log_probs / parameters["scaling"], binned[0])


def three_parts(examples: int, bins: int, seed: int) -> tuple[Tensor, ...]:
    """Return the numbers of the examples of three parts, drawn by the seed."""
    if examples < 3 * bins:
        raise UserError(
            f"expected at least {3 * bins} validation examples, three parts of one a bin, got "
            f"{examples}: lower bins from {bins}."
        )
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(seed))
    return order.tensor_split(3)


def _shares(weights: Tensor | None, part: Tensor) -> Tensor | None:
    return None if weights is None else weights[part] / weights[part].sum()


def _temperature(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    return torch.tensor([best_temperature(log_probs, labels, weights)], dtype=torch.float64)


def top_probability(log_probs: Tensor, temperature: Tensor) -> Tensor:
    """Return the winning probability at a temperature: (N, C) -> (1, N)."""
    return (log_probs / temperature).softmax(1).max(1).values[None]


def platt(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return slope and offset of the log-odds of each class: (N, C), (N,) -> (2, C).

    Platt's targets, (n + 1) / (n + 2) for the n examples of a class and 1 / (m + 2) for the m of
    the rest, keep both finite where a class is missing or perfectly told apart.
    """
    odds, truth = log_odds(log_probs), one_vs_rest(labels, log_probs.shape[1]).T  # (N, C)
    hits, misses = truth.sum(0), (1 - truth).sum(0)  # (C,)
    targets = torch.where(truth > 0, (hits + 1) / (hits + 2), 1 / (misses + 2))  # (N, C)
    plain = torch.stack([torch.ones_like(hits), torch.zeros_like(hits)])

    def loss(line: Tensor) -> Tensor:  # (2, C)
        scores = line[0] * odds + line[1]
        if weights is None:
            return functional.binary_cross_entropy_with_logits(scores, targets)
        losses = functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
        return (weights * losses.mean(1)).sum()

    return minimise(loss, plain)


def platt_scaled(log_probs: Tensor, line: Tensor) -> Tensor:
    """Return each class's probability against the rest: (N, C), (2, C) -> (C, N)."""
    return torch.sigmoid(line[0] * log_odds(log_probs) + line[1]).T


def log_odds(log_probs: Tensor) -> Tensor:
    odds = log_probs - floored_log(-torch.expm1(log_probs))  # (N, C)
    return odds.clamp(-EXTREME, EXTREME)


def with_top_probability(logits: Tensor, confidence: Tensor) -> Tensor:
    """Give the winning class a confidence, the others the remainder: (N, C), (N,) -> (N, C).

    Where that would make another class win, the winner keeps the least confidence that stays ahead.
    """
    winner = logits.argmax(1, keepdim=True)  # (N, 1)
    others = logits.scatter(1, winner, -torch.inf).log_softmax(1)  # among themselves
    following = others.max(1, keepdim=True).values.exp()
    least = following / (1 + following) * (1 + TOP_LEAD)
    top = torch.maximum(confidence[:, None], least)  # (N, 1)
    return (others + floored_log(1 - top)).scatter(1, winner, floored_log(top))


Fit = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Scale = Callable[[Tensor, Tensor], Tensor]
SCALINGS: dict[str, tuple[Fit, Scale]] = {
    "top_label": (_temperature, top_probability),
    "marginal": (platt, platt_scaled),
}
