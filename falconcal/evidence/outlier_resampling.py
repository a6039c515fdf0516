"""Draws of all that is said of a set of outliers, its examples and the clean ones resampled."""

from dataclasses import asdict

import numpy

from falconcal.evidence.pooled import Draws, drawn_counts, level_draws
from falconcal.evidence.rank_statistics import drawn_outlier_figures
from falconcal.metrics import metrics_without, outlier_detection
from falconcal.metrics.outlier_detection import SIGNALS, signal_of
from falconcal.metrics.predictions import Scores


def outlier_set_draws(clean: Scores, outside: Scores, counts: numpy.ndarray) -> dict[str, Draws]:
    """Return the draws of each figure by its name in the rows; ``counts`` (R, N) are the clean's.

    The outliers are drawn apart from the clean examples, and alike in every call, so the figures of
    several models are paired.
    """
    taken = drawn_counts(len(outside), len(counts), seed=1)
    found = {
        name: level_draws(outside, name, taken)
        for name, metric in metrics_without("labels", "all_classes").items()
        if metric.values is not None
    }
    for signal in SIGNALS:
        seen = asdict(outlier_detection(clean, outside, signal))
        signals = signal_of(clean, signal), signal_of(outside, signal)
        for figure, drawn in drawn_outlier_figures(*signals, counts, taken).items():
            observed = numpy.array([seen[figure]])
            found[f"{signal}_{figure}"] = Draws(observed, drawn[:, None], error=False)
    return found
