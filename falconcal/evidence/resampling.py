"""The bootstrap for metrics that are functions of sums over examples (Efron 1979).

Drawing n of n examples again and again is drawing how often each is taken: multinomial counts. A
metric whose examples enter through sums of features then needs counts times features, for all
resamples at once. Beyond ``MOST_CELLS`` units, neighbours in the order of a key share a cell and
enter with its mean, which keeps the distribution of the sums up to the spread inside a cell.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch

from falconcal.bins import bin_index
from falconcal.metrics import BINS
from falconcal.predictions import Scores

MOST_CELLS = 4000


@dataclass(frozen=True, eq=False)
class SumMetric:
    """A metric as features that are summed, a key that puts alike ones side by side, and an end."""

    features: Callable[[Scores], numpy.ndarray]  # scores of N -> (N, F)
    key: Callable[[Scores], numpy.ndarray]  # scores of N -> (N,)
    finish: Callable[[numpy.ndarray], numpy.ndarray]  # sums (R, F) -> values (R,)


def resampled(
    metric: SumMetric,
    scores: Scores,
    resamples: int,
    generator: numpy.random.Generator,
    clusters: numpy.ndarray | None = None,
) -> numpy.ndarray:
    """Return the metric of each resample, (R,); members of a cluster (N,) are taken together."""
    features = metric.features(scores)
    if clusters is None:
        counts, means = cells_of(features, metric.key(scores))
    else:
        means = cluster_sums(features, clusters)
        counts = numpy.ones(len(means))
    return metric.finish(taken_sums(counts, means, resamples, generator))


def taken_sums(
    counts: numpy.ndarray,
    means: numpy.ndarray,
    resamples: int,
    generator: numpy.random.Generator,
) -> numpy.ndarray:
    """Return the feature sums of each resample: counts (K,), means (K, F) -> (R, F)."""
    taken = generator.multinomial(int(counts.sum()), counts / counts.sum(), size=resamples)
    sums: numpy.ndarray = taken.astype(numpy.float64) @ means  # (R, K) @ (K, F)
    return sums


def cluster_sums(features: numpy.ndarray, clusters: numpy.ndarray) -> numpy.ndarray:
    """Return the features summed over each cluster: (N, F) -> (G, F)."""
    _, index = numpy.unique(clusters, return_inverse=True)
    return numpy.stack([numpy.bincount(index, column) for column in features.T], 1)


def cells_of(features: numpy.ndarray, key: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the counts (K,) and the mean features (K, F) of cells of neighbours."""
    if len(features) <= MOST_CELLS:
        return numpy.ones(len(features)), features
    starts = numpy.arange(MOST_CELLS) * len(features) // MOST_CELLS
    counts = numpy.diff(numpy.append(starts, len(features)))
    sums = numpy.add.reduceat(features[numpy.argsort(key)], starts, axis=0)
    return counts, sums / counts[:, None]


def mean_of(column: str) -> SumMetric:
    """Return the mean of a column of scores as a metric of sums."""

    def values(scores: Scores) -> numpy.ndarray:
        return getattr(scores, column).double().numpy()  # type: ignore[no-any-return]

    return SumMetric(
        features=lambda scores: numpy.stack([numpy.ones(len(scores)), values(scores)], 1),
        key=values,
        finish=lambda sums: sums[:, 1] / sums[:, 0],
    )


def binned(finish: Callable[[numpy.ndarray], numpy.ndarray]) -> SumMetric:
    """Return a metric of equal-width bins; ``finish`` takes counts, confidence, hits: (R, 3, M)."""
    return SumMetric(
        features=_bin_features,
        key=lambda scores: scores.confidence.double().numpy() + 2 * scores.correct.numpy(),
        finish=lambda sums: finish(sums.reshape(len(sums), 3, BINS)),
    )


def _bin_features(scores: Scores) -> numpy.ndarray:
    index = bin_index(scores.confidence, BINS)  # (N,)
    chosen = torch.nn.functional.one_hot(index, BINS).double()  # (N, M)
    columns = (torch.ones(len(scores)), scores.confidence, scores.correct)
    return torch.cat([chosen * column.double()[:, None] for column in columns], 1).numpy()


def _expected(sums: numpy.ndarray) -> numpy.ndarray:
    counts, confidence, hits = sums.transpose(1, 0, 2)  # (R, M) each
    errors: numpy.ndarray = numpy.abs(hits - confidence).sum(1) / counts.sum(1)
    return errors


def _signed(sums: numpy.ndarray) -> numpy.ndarray:
    counts, confidence, hits = sums.transpose(1, 0, 2)
    gaps: numpy.ndarray = (confidence.sum(1) - hits.sum(1)) / counts.sum(1)
    return gaps


SUM_METRICS: dict[str, SumMetric] = {
    "accuracy": mean_of("correct"),
    "nll": mean_of("nll"),
    "brier": mean_of("brier"),
    "entropy": mean_of("entropy"),
    "confidence": mean_of("confidence"),
    "ece": binned(_expected),
    "signed_gap": binned(_signed),
}
