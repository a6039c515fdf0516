"""Histogram binning: each class's probability becomes the frequency of its bin, renormalised.

Zadrozny & Elkan, "Obtaining Calibrated Probability Estimates from Decision Trees and Naive Bayesian
Classifiers", ICML 2001. One class against the rest: the probabilities of the validation examples
fall into bins, and a bin answers with the share of its examples that are of the class. Bins are
closed on the right. A bin without examples answers with its middle; a class that the validation
labels lack gets probability 0, a row of zeros becomes uniform.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from falconcal.core.settings import Count, settings
from falconcal.metrics.binning import EDGE_TOLERANCE
from falconcal.recalibration.calibrated_model import Parameters
from falconcal.recalibration.calibrator import Calibrator, one_vs_rest, renormalised


@settings
class HistogramBinning(Calibrator):
    """Histogram binning: one frequency per bin and class, from validation data.

    The predicted class may change.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> network = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = method.fit(network, data.train.batches(50), data.validation.batches(100))
        >>> calibrator = falconcal.HistogramBinning()
        >>> calibrated = calibrator.fit(model, validation=data.validation.batches(100))
        >>> falconcal.predict(calibrated, data.test).log_probs.shape
        torch.Size([397, 10])
    """

    parameter_names: ClassVar[tuple[str, ...]] = (
        "edges",
        "values",
    )  # (C, M - 1) between bins, (C, M)

    bins: Count = 10
    """Number of bins per class."""
    spacing: Literal["mass", "width"] = "mass"
    """Bins with equally many examples (``mass``), or equally wide ones (``width``)."""

    def learn(self, log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Parameters:
        probs, truth = log_probs.exp().T, one_vs_rest(labels, log_probs.shape[1])  # (C, N)
        by_mass = self.spacing == "mass"
        edges = mass_edges(probs, self.bins, weights) if by_mass else width_edges(probs, self.bins)
        values = bin_means(probs, edges, truth, middles(edges), weights)
        return {"edges": edges, "values": values}

    def apply(self, log_probs: Tensor, **parameters: Tensor) -> Tensor:
        probs = log_probs.exp().T.contiguous()  # (C, N)
        frequencies = parameters["values"].gather(1, bin_of_probability(probs, parameters["edges"]))
        return renormalised(frequencies.T)


def width_edges(probs: Tensor, bins: int) -> Tensor:
    """Return the inner edges of equally wide bins, the same for each class: (C, M - 1)."""
    edges = torch.arange(1, bins, dtype=probs.dtype) / bins + EDGE_TOLERANCE
    return edges.expand(len(probs), -1).contiguous()


def mass_edges(probs: Tensor, bins: int, weights: Tensor | None = None) -> Tensor:
    """Return inner edges between equally many examples, or equal weights, half way between two.

    (C, N) -> (C, M - 1). Examples of equal probability cannot be told apart: an edge among them
    leaves bins unequal.
    """
    (ordered, order), count = probs.sort(1), probs.shape[1]  # (C, N)
    # the first example above each edge
    if weights is None:
        upper = (torch.arange(1, bins) * count // bins).expand(len(probs), -1)
    else:
        passed = weights[order].cumsum(1)  # (C, N)
        shares = torch.arange(1, bins, dtype=passed.dtype) / bins * passed[:, -1:]
        # a sum of weights that rounding alone keeps below an edge has reached it
        upper = (torch.searchsorted(passed, shares * (1 - 1e-12)) + 1).clamp(max=count - 1)
    return (ordered.gather(1, (upper - 1).clamp_min(0)) + ordered.gather(1, upper)) / 2


def bin_of_probability(probs: Tensor, edges: Tensor) -> Tensor:
    """Return the bin of each probability, bins closed on the right: (C, N) -> (C, N)."""
    return torch.searchsorted(edges, probs.contiguous())


def bin_means(
    probs: Tensor, edges: Tensor, what: Tensor, empty: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Return the mean of something in each bin, and where a bin is empty what is given: (C, M)."""
    index = bin_of_probability(probs, edges)  # (C, N)
    each = torch.ones_like(what) if weights is None else weights.expand_as(what)
    counts = torch.zeros_like(empty).scatter_add(1, index, each)
    sums = torch.zeros_like(empty).scatter_add(1, index, each * what)
    return torch.where(counts > 0, sums / counts.where(counts > 0, 1.0), empty)


def middles(edges: Tensor) -> Tensor:
    """Return the middle of each bin between 0, the edges and 1: (C, M - 1) -> (C, M)."""
    zero = edges.new_zeros(len(edges), 1)
    outer = torch.cat([zero, edges, zero + 1], 1)  # (C, M + 1)
    return (outer[:, 1:] + outer[:, :-1]) / 2
