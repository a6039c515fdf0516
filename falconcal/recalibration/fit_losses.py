"""The losses that calibrators are fitted by, of log-probabilities, labels and weights."""

from torch import Tensor
from torch.nn import functional


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
