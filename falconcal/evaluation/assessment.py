"""Everything about one set of predictions: each metric with its interval, and the curves."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import polars
import torch
from torch import Tensor

from falconcal.drawing.record_html import record_html
from falconcal.errors import UsageError, UserError, described, unknown_name_error
from falconcal.evidence import Group, by_group, interval
from falconcal.evidence.groups import listed_groups
from falconcal.metrics import (
    BINS,
    METRICS,
    BrierParts,
    Metric,
    ReliabilityCurve,
    RiskCoverage,
    accuracy_at_coverage,
    brier_decomposition,
    metrics_without,
    reliability_curve,
    risk_coverage_curve,
)
from falconcal.metrics.binning import bin_index
from falconcal.metrics.metric import Need
from falconcal.metrics.metric_inputs import labelled, labelled_predictions
from falconcal.metrics.predictions import Data, PredictionRecord, Predictions, Scores, as_record
from falconcal.metrics.reliability_bins import reliability_bins_table

if TYPE_CHECKING:
    import altair

COVERAGES = (0.9, 0.8, 0.5)
HISTOGRAM_CELLS = 20
NOTABLE_ERROR = 0.01  # of true ECE above the mean gap, from which on it is said beside it
UNSURE_GAP = 0.05  # beyond this, an interval of the gap around 0 tells nothing
CURVE_POINTS = 200  # a line drawn through more looks the same
MOST_BINS = 1000
MOST_GROUPS = 200
# class-wise ECE is resampled one by one: above this many probabilities, examples times classes,
# that takes minutes, and it is given without an interval
MOST_CLASSWISE = 200_000


@dataclass(frozen=True)
class MetricValue:
    """The value of a metric, with the bounds of its 95 % interval where there is one.

    Example:
        >>> from falconcal.evaluation import MetricValue
        >>> MetricValue(0.5).low is None
        True
    """

    value: float
    """The value."""
    low: float | None = None
    """The lower bound, if there is an interval."""
    high: float | None = None
    """The upper bound, if there is an interval."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """What ``assess`` found; its size does not grow with the number of examples.

    Example:
        >>> import falconcal
        >>> found = falconcal.assess(([[0.9, 0.1], [0.2, 0.8]], [0, 1]))
        >>> found.examples, found.classes, found.metrics["accuracy"].value
        (2, 2, 1.0)
    """

    examples: int
    """How many examples there are."""
    classes: int
    """How many classes there are; of scores, how many occur."""
    bins: int
    """How many bins the binned figures have."""
    metrics: dict[str, MetricValue]
    """Every metric of ``METRICS`` by name, as far as the data allows."""
    brier_parts: BrierParts | None
    """The parts of the Brier score, where the probabilities of all classes are known."""
    accuracy_at_coverage: dict[float, float]
    """Accuracy when only the most confident share is answered, by that share."""
    reliability: ReliabilityCurve
    """The reliability diagram."""
    histogram: Tensor
    """Wrong and right answers by confidence, (2, 20)."""
    risk_coverage: RiskCoverage
    """The risk-coverage curve, thinned to 200 points."""
    group_metric: str
    """The metric that groups are compared by."""
    groups: list[Group]
    """That metric of each group, the worst first; empty if no groups were given."""

    @property
    def verdict(self) -> str:
        """What the figures come to, in words, such as "24 points too timid"."""
        return verdict_words(self.metrics["signed_gap"])

    @property
    def sentences(self) -> list[str]:
        """The verdict and what it rests on, one sentence each."""
        sure, right = (self.metrics[name].value for name in ("confidence", "accuracy"))
        gap, ece = self.metrics["signed_gap"], self.metrics["ece"]
        bounds = f"{100 * (gap.low or 0):+.1f} to {100 * (gap.high or 0):+.1f}"
        reason = f"{100 * sure:.1f} % sure on average, right in {100 * right:.1f} % of all cases"
        found = [
            f"{self.verdict[0].upper()}{self.verdict[1:]}.",
            f"{reason} (95 % interval of the gap: {bounds} points).",
        ]
        if ece.low is not None and ece.low > abs(gap.value) + NOTABLE_ERROR:
            off = f"{100 * ece.value:.1f} points off"
            found.append(f"Bin by bin it is {off} (ECE): too sure here, not sure enough there.")
        return found

    def to_frame(self) -> polars.DataFrame:
        """Return the metrics as a table: metric, value, low and high."""
        rows = [(name, one.value, one.low, one.high) for name, one in self.metrics.items()]
        types = {"metric": polars.String} | dict.fromkeys(("value", "low", "high"), polars.Float64)
        return polars.DataFrame(rows, schema=types, orient="row")

    def plot(self) -> "altair.LayerChart":
        """Return the reliability diagram as an Altair chart, with the verdict over it."""
        from falconcal.drawing.reliability_chart import reliability_chart

        return reliability_chart(reliability_bins_table(self.reliability), self.sentences[0])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict and the metrics."""
        return record_html(self.sentences, ["Metric", "Value", "95 % interval"], self._cells())

    def _cells(self) -> list[list[str]]:
        return [
            [
                name,
                f"{one.value:.4f}",
                "" if one.low is None else f"{one.low:.4f} to {one.high:.4f}",
            ]
            for name, one in self.metrics.items()
        ]

    def to_json(self) -> str:
        """Return the figures, without the curves, as JSON."""
        found: dict[str, object] = {
            "verdict": self.verdict,
            "examples": self.examples,
            "classes": self.classes,
            "bins": self.bins,
            "metrics": {name: asdict(measured) for name, measured in self.metrics.items()},
            "brier_parts": None if self.brier_parts is None else asdict(self.brier_parts),
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
    """Measure one set of predictions by every metric, and by one metric per group.

    Intervals of binned metrics are for ten bins only; with another number of bins they have values
    without intervals.

    Args:
        predictions: Predictions, a pair of probabilities (N, C) and labels (N,), or scores, of
            which metrics that need more are left out.
        bins: How many bins the binned figures have, from 1 to 1000.
        groups: The group of each example, (N,), at most 200 different ones.
        metric: The metric that groups are compared by, a name of ``METRICS``.
        seed: Of the resamples of the intervals.

    Returns:
        All metrics with their intervals, the curves, and the groups.

    Raises:
        UsageError: If ``bins`` or ``metric`` is not as described.
        UserError: If an example has no true class, or there are too many groups.

    Example:
        >>> import falconcal
        >>> found = falconcal.assess(([[0.9, 0.1], [0.9, 0.1]], [0, 1]), groups=["north", "south"])
        >>> round(found.metrics["ece"].value, 6), found.groups[0].name
        (0.4, 'south')
    """
    record = as_record(predictions)
    whole = labelled_predictions(record, "an assessment") if _has_classes(record) else None
    scores = labelled(record, "an assessment")
    groups = None if groups is None else listed_groups(groups)
    _check(bins, groups, metric)
    return Assessment(
        examples=len(scores),
        classes=_class_count(whole, scores),
        bins=bins,
        metrics=_all_metrics(whole, scores, bins, seed),
        brier_parts=None if whole is None else brier_decomposition(whole, bins),
        accuracy_at_coverage={at: accuracy_at_coverage(scores, at) for at in COVERAGES},
        reliability=reliability_curve(scores, bins),
        histogram=_histogram(scores),
        risk_coverage=_thinned(risk_coverage_curve(scores)),
        group_metric=metric,
        groups=_by_group(whole, scores, groups, metric, seed) if groups is not None else [],
    )


def verdict_words(gap: MetricValue) -> str:
    """Return how much too sure or too timid, in points of a percent, if chance does not explain it.

    Args:
        gap: Mean confidence less accuracy, with its interval.

    Returns:
        Words such as "24 points too timid".

    Example:
        >>> from falconcal.evaluation.assessment import MetricValue, verdict_words
        >>> verdict_words(MetricValue(-0.24, low=-0.27, high=-0.21))
        '24 points too timid'
        >>> verdict_words(MetricValue(0.01, low=-0.01, high=0.03))
        'as sure as right on average'
        >>> verdict_words(MetricValue(0.25, low=-0.25, high=0.75))
        'too few examples to tell too sure from too timid'
    """
    assert gap.low is not None  # a mean always has an interval
    assert gap.high is not None
    if gap.low <= 0 <= gap.high:
        if max(-gap.low, gap.high) > UNSURE_GAP:
            return "too few examples to tell too sure from too timid"
        return "as sure as right on average"
    points = 100 * abs(gap.value)
    number = f"{points:.0f}" if points >= 0.95 else f"{points:.1f}"
    direction = "too sure" if gap.value > 0 else "too timid"
    return f"{number} point{'' if number == '1' else 's'} {direction}"


def _has_classes(record: PredictionRecord) -> bool:
    return isinstance(record, Predictions)


def _class_count(whole: Predictions | None, scores: Scores) -> int:
    if whole is not None:
        return whole.classes
    return 1 + max(int(scores.label.max()), int(scores.prediction.max()))


def _by_group(
    whole: Predictions | None, scores: Scores, groups: Sequence[object], metric: str, seed: int
) -> list[Group]:
    data = _needed(METRICS[metric], whole, scores)
    return by_group(data, groups, metric, seed=seed)


def _check(bins: int, groups: Sequence[object] | None, metric: str) -> None:
    if not isinstance(bins, Integral) or not 1 <= bins <= MOST_BINS:
        raise UsageError(f"expected from 1 to {MOST_BINS} bins, got {bins!r}.")
    if not isinstance(metric, str):
        raise UsageError(f"expected the name of a metric, got {described(metric)}.")
    if metric not in METRICS:
        raise unknown_name_error("metric", metric, METRICS)
    if groups is None:
        return
    different = len(set(groups))
    if different > MOST_GROUPS:
        raise UserError(
            f"expected at most {MOST_GROUPS} groups, got {different:,}: choose a column that "
            "repeats, such as a site or a device, not an identifier of examples."
        )


def _all_metrics(
    whole: Predictions | None, scores: Scores, bins: int, seed: int
) -> dict[str, MetricValue]:
    lacking: list[Need] = ["all_classes"] if whole is None else []
    if scores.top_only:
        lacking.append("distribution")
    return {
        name: _measure(metric, _needed(metric, whole, scores), bins, seed)
        for name, metric in metrics_without(*lacking).items()
    }


def _needed(metric: Metric, whole: Predictions | None, scores: Scores) -> Predictions | Scores:
    """Return what a metric takes: scores, which are made already, unless it needs all classes."""
    return whole if whole is not None and "all_classes" in metric.needs else scores


def _measure(metric: Metric, data: Predictions | Scores, bins: int, seed: int) -> MetricValue:
    if "bins" in metric.needs and bins != BINS:
        return MetricValue(metric(data, bins))
    if isinstance(data, Predictions) and len(data) * data.classes > MOST_CLASSWISE:
        return MetricValue(metric(data))
    found = interval(data, metric, seed=seed)
    return MetricValue(found.value, found.low, found.high)


def _histogram(scores: Scores) -> Tensor:
    cell = bin_index(scores.confidence, HISTOGRAM_CELLS) + HISTOGRAM_CELLS * scores.correct
    return torch.bincount(cell, minlength=2 * HISTOGRAM_CELLS).reshape(2, HISTOGRAM_CELLS)


def _thinned(curve: RiskCoverage) -> RiskCoverage:
    """Return the curve at evenly spaced coverages, its two ends among them."""
    last, points = len(curve.risk) - 1, min(len(curve.risk), CURVE_POINTS)
    kept = torch.linspace(0, last, points, dtype=torch.float64).round().long()
    return RiskCoverage(curve.coverage[kept], curve.risk[kept], curve.threshold[kept])
