"""The bootstrap at once (Efron 1979): how often each example is taken, for all resamples together.

Drawing n of n examples again and again is drawing multinomial counts. Examples that are alike share
a cell, which is taken as often as they are together; what a metric needs of a resample then comes
from counts (R, K) and what stands in the cells, without a loop.
"""

from dataclasses import dataclass

import numpy

from falconcal.metrics.metric import Metric
from falconcal.metrics.predictions import Scores

MOST_CELLS = 4000


@dataclass(frozen=True, eq=False)
class Cells:
    """Groups of alike examples: how many are in each, and the mean of their features."""

    counts: numpy.ndarray  # (K,)
    means: numpy.ndarray  # (K, F)

    @classmethod
    def of(cls, number: numpy.ndarray, features: numpy.ndarray) -> "Cells":
        """Gather examples by the number of their cell: (N,), (N, F)."""
        _, index, counts = numpy.unique(number, return_inverse=True, return_counts=True)
        sums = [numpy.bincount(index, column) for column in features.T]
        return cls(counts, numpy.stack(sums, 1) / counts[:, None])

    def taken(self, resamples: int, generator: numpy.random.Generator) -> numpy.ndarray:
        """Return how often the members of each cell are taken in each resample: (R, K)."""
        examples = int(self.counts.sum())
        drawn = generator.multinomial(examples, self.counts / examples, size=resamples)
        return drawn.astype(numpy.float64)

    def sums(self, resamples: int, generator: numpy.random.Generator) -> numpy.ndarray:
        """Return the sum of the features of each resample: (R, F)."""
        sums: numpy.ndarray = self.taken(resamples, generator) @ self.means
        return sums


def neighbours(key: numpy.ndarray) -> numpy.ndarray:
    """Number cells of equal keys, or of neighbours in their order where those are too many: (N,).

    The numbers follow the key. Neighbours enter with their mean, which keeps the distribution of
    sums up to the spread inside a cell.
    """
    values, index = numpy.unique(key, return_inverse=True)
    if len(values) <= MOST_CELLS:
        return index
    rank = numpy.empty(len(key), dtype=numpy.int64)
    rank[numpy.argsort(key, kind="stable")] = numpy.arange(len(key))
    return rank * MOST_CELLS // len(key)


def clustered(features: numpy.ndarray, clusters: numpy.ndarray) -> Cells:
    """Return clusters as cells that are taken whole: their features are sums, not means."""
    _, index = numpy.unique(clusters, return_inverse=True)
    sums = [numpy.bincount(index, column) for column in features.T]
    return Cells(numpy.ones(int(index.max()) + 1), numpy.stack(sums, 1))


def mean_draws(
    values: numpy.ndarray,
    resamples: int,
    generator: numpy.random.Generator,
    clusters: numpy.ndarray | None = None,
) -> numpy.ndarray:
    """Return the mean of values (N,) in each resample, (R,)."""
    features = numpy.stack([numpy.ones(len(values)), values], 1)
    if clusters is None:
        cells = Cells.of(neighbours(values), features)
    else:
        cells = clustered(features, clusters)
    sums = cells.sums(resamples, generator)
    means: numpy.ndarray = sums[:, 1] / sums[:, 0]
    return means


def example_values(metric: Metric, scores: Scores) -> numpy.ndarray:
    """Return the value of each example whose mean the metric is, (N,)."""
    assert metric.values is not None  # a record of a mean says of what
    return metric.values(scores).double().numpy()
