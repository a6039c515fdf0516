"""The losses that calibrators are fitted by, of log-probabilities, labels and weights.

Squares are bounded: a wrong answer costs at most 2 however sure it is, so a fit on few mistakes may
gain by sharpening everything. The smoothed likelihood has the targets of Platt, "Probabilistic
Outputs for Support Vector Machines", 1999: after N examples the true class counts (N + 1) / (N + 2)
and the rest is spread over all classes, so that no confidence without end is ever best.
"""

from collections.abc import Callable
from typing import Literal

from torch import Tensor
from torch.nn import functional

FitLoss = Literal["auto", "squares", "likelihood"]
Measure = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def weighted_nll(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean negative log-likelihood, by weights (N,) of sum 1 where there are any."""
    return weighted_mean(functional.nll_loss(log_probs, labels, reduction="none"), weights)


def weighted_squares(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean of |p - y|^2, y the label as a vector: the Brier score as a tensor."""
    probs = log_probs.exp()  # (N, C)
    truth = probs.gather(1, labels[:, None])[:, 0]  # (N,)
    return weighted_mean(probs.square().sum(1) - 2 * truth + 1, weights)


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of (N,), by weights of sum 1 where there are any."""
    return values.mean() if weights is None else (weights * values).sum()


def smoothed_nll(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean cross-entropy with Platt's targets: one doubt more among N examples."""
    doubt = 1 / (len(labels) + 2)
    truth = functional.nll_loss(log_probs, labels, reduction="none")  # (N,)
    return weighted_mean((1 - doubt) * truth - doubt * log_probs.mean(1), weights)


def found_by_loss(
    name: FitLoss,
    search: Callable[[Measure], Tensor],
    smoothed_likelihood: Callable[[Tensor], Tensor],
    start: Tensor,
) -> Tensor:
    """Return what a search finds by squares or by the smoothed likelihood.

    ``auto`` keeps what squares find unless its smoothed likelihood is worse than the start's, one
    temperature: then squares were made smaller by being far too sure of some examples.
    """
    if name == "likelihood":
        return search(smoothed_nll)
    found = search(weighted_squares)
    if name == "squares" or smoothed_likelihood(found) <= smoothed_likelihood(start):
        return found
    return search(smoothed_nll)
