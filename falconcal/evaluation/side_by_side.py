"""Several sets of predictions of the same examples: each by itself, and differences in pairs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import polars

from falconcal.drawing.record_html import record_html
from falconcal.errors import UserError
from falconcal.evaluation.assessment import Assessment, assess
from falconcal.evidence import Difference, holm, paired_test
from falconcal.metrics import BINS, METRICS
from falconcal.metrics.metric_inputs import labelled
from falconcal.metrics.predictions import Data, Scores, as_record

TESTED_METRICS = ("accuracy", "ece", "nll", "brier")  # metrics whose differences are tested


@dataclass(frozen=True)
class PairedRow:
    """How one set of predictions differs from the first by one metric.

    Example:
        >>> from falconcal.evaluation import PairedRow
        >>> from falconcal.evidence import Difference
        >>> row = PairedRow("b.csv", "ece", Difference(-0.02, -0.03, -0.01, 0.002, -0.5), 0.004)
        >>> row.words
        'better than the first'
    """

    name: str
    """The set that is compared with the first."""
    metric: str
    """The metric, a name of ``METRICS``."""
    difference: Difference
    """Its value less the first's, with bounds and p-value."""
    p_holm: float
    """The p-value, corrected for the number of sets by Holm's method."""

    @property
    def words(self) -> str:
        """Which of the two is better, if chance does not explain the difference."""
        if self.difference.low <= 0 <= self.difference.high:
            return "no difference that the sample can show"
        higher = METRICS[self.metric].better == "higher"
        return (
            "better than the first"
            if (self.difference.high > 0) == higher
            else "worse than the first"
        )


@dataclass(frozen=True, eq=False)
class SideBySide:
    """What ``assess_together`` found.

    Example:
        >>> import falconcal
        >>> from falconcal.evaluation import assess_together
        >>> labels = [0, 1] * 10
        >>> data = {"even": ([[0.5, 0.5]] * 20, labels), "sure": ([[0.9, 0.1]] * 20, labels)}
        >>> both = assess_together(data)
        >>> both.reference, [row.metric for row in both.differences]
        ('even', ['accuracy', 'ece', 'nll', 'brier'])
    """

    assessments: dict[str, Assessment]
    """All metrics of each set by name, the reference first."""
    reference: str
    """The set that the others are compared with."""
    differences: list[PairedRow]
    """The differences from the reference, one row per set and metric."""

    def to_frame(self) -> polars.DataFrame:
        """Return the differences as a table, one row per set and metric."""
        rows = [
            {"name": row.name, "metric": row.metric, **asdict(row.difference), "p_holm": row.p_holm}
            for row in self.differences
        ]
        return polars.DataFrame(rows)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdicts and the differences from the reference."""
        verdicts = [f"{name}: {one.sentences[0]}" for name, one in self.assessments.items()]
        heading = ["Compared with " + self.reference, "Metric", "Difference", "95 % interval", "p"]
        cells = [
            [row.name, row.metric, f"{row.difference.value:+.4f}",
             f"{row.difference.low:+.4f} to {row.difference.high:+.4f}", f"{row.p_holm:.3g}"]
            for row in self.differences
        ]  # fmt: skip
        return record_html(verdicts, heading, cells)

    def to_json(self) -> str:
        """Return the figures of all sets and the differences as JSON."""
        found = {
            "reference": self.reference,
            "files": {name: json.loads(one.to_json()) for name, one in self.assessments.items()},
            "differences": self.to_frame().to_dicts(),
        }
        return json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def assess_together(
    predictions: Mapping[str, Data], *, bins: int = BINS, seed: int = 0
) -> SideBySide:
    """Measure several sets of predictions of the same examples, and compare them with the first.

    Differences are paired: the same examples are drawn for both in each resample.

    Args:
        predictions: Two or more sets by name, each what ``assess`` takes, with the same labels in
            the same order. The first is the reference.
        bins: How many bins the binned figures have, from 1 to 1000; differences are for ten.
        seed: Of the resamples.

    Returns:
        Each set's figures, and the differences of accuracy, ECE, NLL and Brier score, of the last
        two only where all sets have the probabilities of all classes.

    Raises:
        UserError: If there are fewer than two sets, or their labels differ.

    Example:
        >>> from falconcal.evaluation import assess_together
        >>> labels = [0, 1] * 20
        >>> right = [[0.9, 0.1], [0.1, 0.9]] * 20
        >>> wrong = [[0.1, 0.9], [0.9, 0.1]] * 20
        >>> both = assess_together({"wrong": (wrong, labels), "right": (right, labels)})
        >>> both.differences[0].metric, both.differences[0].words
        ('accuracy', 'better than the first')
    """
    if len(predictions) < 2:
        raise UserError(f"expected two or more sets of predictions, got {len(predictions)}.")
    records = {name: as_record(data) for name, data in predictions.items()}
    assessed = {name: assess(one, bins=bins, seed=seed) for name, one in records.items()}
    scores = {name: labelled(one, "a comparison") for name, one in records.items()}
    reference, *others = scores
    top_only = any(one.top_only for one in scores.values())
    metrics = [
        name for name in TESTED_METRICS if not (top_only and "distribution" in METRICS[name].needs)
    ]
    rows = [row for metric in metrics for row in _rows(scores, reference, others, metric, seed)]
    return SideBySide(assessed, reference, sorted(rows, key=lambda row: others.index(row.name)))


def _rows(
    scores: Mapping[str, Scores], reference: str, others: list[str], metric: str, seed: int
) -> list[PairedRow]:
    """Return the differences of one metric, their p-values corrected together."""
    found = [paired_test(scores[name], scores[reference], metric, seed=seed) for name in others]
    corrected = holm([one.p_value for one in found])
    return [
        PairedRow(name, metric, one, p_holm)
        for name, one, p_holm in zip(others, found, corrected, strict=True)
    ]
