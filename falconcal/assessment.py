"""All that can be said of one set of predictions: each metric with its interval, and curves."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral

import torch
from scipy.special import ndtri
from torch import Tensor

from falconcal.bins import bin_index
from falconcal.errors import UsageError, UserError, described, unknown
from falconcal.evidence import Group, by_group, interval
from falconcal.evidence.groups import listed_groups
from falconcal.metrics import (
    BINS,
    CLASS_METRICS,
    METRICS,
    BrierParts,
    ReliabilityCurve,
    RiskCoverage,
    accuracy_at_coverage,
    adaptive_calibration_error,
    brier_decomposition,
    classwise_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_curve,
    risk_coverage_curve,
)
from falconcal.metrics.scored import labelled_predictions
from falconcal.predictions import Data, Predictions, Scores

COVERAGES = (0.9, 0.8, 0.5)
HISTOGRAM_CELLS = 20
CURVE_POINTS = 200  # a line drawn through more looks the same
MOST_BINS = 1000
MOST_GROUPS = 200
# class-wise ECE is resampled one by one: above this many probabilities, examples times classes,
# that takes minutes, and it is given without an interval
MOST_CLASSWISE = 200_000
BINNED: dict[str, Callable[[Scores, int], float]] = {
    "ece": expected_calibration_error,
    "adaptive_ece": adaptive_calibration_error,
    "mce": maximum_calibration_error,
}


@dataclass(frozen=True)
class Measured:
    """A metric's value, with the bounds of its 95 % interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class Assessment:
    """What ``assess`` found; the curves are small, whatever the number of examples."""

    examples: int
    classes: int
    bins: int
    metrics: dict[str, Measured]
    brier_parts: BrierParts
    accuracy_at_coverage: dict[float, float]
    reliability: ReliabilityCurve
    histogram: Tensor  # (2, HISTOGRAM_CELLS): wrong and right answers by confidence
    risk_coverage: RiskCoverage  # at most CURVE_POINTS of it
    group_metric: str
    groups: list[Group]  # the worst first; none if no groups were given

    def to_json(self) -> str:
        """Return the figures, not the curves, as JSON."""
        found = {
            "examples": self.examples,
            "classes": self.classes,
            "bins": self.bins,
            "metrics": {name: asdict(measured) for name, measured in self.metrics.items()},
            "brier_parts": asdict(self.brier_parts),
            "accuracy_at_coverage": {
                str(at): share for at, share in self.accuracy_at_coverage.items()
            },
        }
        if self.groups:
            found["group_metric"] = self.group_metric
            found["groups"] = [
                {"group": group.name, "examples": group.examples, **asdict(group.interval)}
                for group in self.groups
            ]
        return json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def assess(
    predictions: Data,
    *,
    bins: int = BINS,
    groups: Sequence[object] | None = None,
    metric: str = "ece",
    seed: int = 0,
) -> Assessment:
    """Measure predictions in every way, and one metric by group if there are groups.

    Intervals of binned metrics are for ten bins alone; with another number of bins the values
    stand without.
    """
    predictions = labelled_predictions(predictions, "an assessment")
    scores = predictions.scores()
    groups = None if groups is None else listed_groups(groups)
    _check(bins, groups, metric)
    return Assessment(
        examples=len(scores),
        classes=predictions.classes,
        bins=bins,
        metrics=_all_metrics(predictions, scores, bins, seed),
        brier_parts=brier_decomposition(predictions, bins),
        accuracy_at_coverage={at: accuracy_at_coverage(scores, at) for at in COVERAGES},
        reliability=reliability_curve(scores, bins),
        histogram=_histogram(scores),
        risk_coverage=_thinned(risk_coverage_curve(scores)),
        group_metric=metric,
        groups=_by_group(predictions, scores, groups, metric, seed) if groups is not None else [],
    )


def wilson_bounds(hits: Tensor, counts: Tensor, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Return the bounds of a share at each number of hits among counts (Wilson, JASA 1927)."""
    z = float(ndtri((1 + level) / 2))
    share = hits / counts
    middle = (share + z**2 / (2 * counts)) / (1 + z**2 / counts)
    spread = share * (1 - share) / counts + z**2 / (4 * counts**2)
    half = z / (1 + z**2 / counts) * spread.sqrt()
    return (middle - half).clamp(0, 1), (middle + half).clamp(0, 1)


def _by_group(
    predictions: Predictions, scores: Scores, groups: Sequence[object], metric: str, seed: int
) -> list[Group]:
    data = predictions if metric in CLASS_METRICS else scores  # those are made already
    return by_group(data, groups, metric, seed=seed)


def _check(bins: int, groups: Sequence[object] | None, metric: str) -> None:
    if not isinstance(bins, Integral) or not 1 <= bins <= MOST_BINS:
        raise UsageError(f"expected from 1 to {MOST_BINS} bins, got {bins!r}.")
    if not isinstance(metric, str):
        raise UsageError(f"expected the name of a metric, got {described(metric)}.")
    if metric not in METRICS and metric not in CLASS_METRICS:
        raise unknown("metric", metric, {**METRICS, **CLASS_METRICS})
    if groups is None:
        return
    different = len(set(groups))
    if different > MOST_GROUPS:
        raise UserError(
            f"expected at most {MOST_GROUPS} groups, got {different:,}: choose a column that "
            "repeats, such as a site or a device, no identifier of examples."
        )


def _all_metrics(
    predictions: Predictions, scores: Scores, bins: int, seed: int
) -> dict[str, Measured]:
    measured = {name: _measure(scores, name, bins, seed) for name in METRICS}
    return {**measured, "classwise_ece": _classwise(predictions, bins, seed)}


def _measure(scores: Scores, name: str, bins: int, seed: int) -> Measured:
    if name in BINNED and bins != BINS:
        return Measured(BINNED[name](scores, bins))
    found = interval(scores, name, seed=seed)
    return Measured(found.value, found.low, found.high)


def _classwise(predictions: Predictions, bins: int, seed: int) -> Measured:
    if bins != BINS or len(predictions) * predictions.classes > MOST_CLASSWISE:
        return Measured(classwise_calibration_error(predictions, bins))
    found = interval(predictions, "classwise_ece", seed=seed)
    return Measured(found.value, found.low, found.high)


def _histogram(scores: Scores) -> Tensor:
    cell = bin_index(scores.confidence, HISTOGRAM_CELLS) + HISTOGRAM_CELLS * scores.correct
    return torch.bincount(cell, minlength=2 * HISTOGRAM_CELLS).reshape(2, HISTOGRAM_CELLS)


def _thinned(curve: RiskCoverage) -> RiskCoverage:
    """Return the curve at evenly spaced coverages, its two ends among them."""
    last, points = len(curve.risk) - 1, min(len(curve.risk), CURVE_POINTS)
    kept = torch.linspace(0, last, points, dtype=torch.float64).round().long()
    return RiskCoverage(curve.coverage[kept], curve.risk[kept], curve.threshold[kept])
