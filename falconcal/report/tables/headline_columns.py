"""The figures of the summary: their names in tables, their headings, what they mean."""

from dataclasses import dataclass

from falconcal.metrics import METRICS, POOLED
from falconcal.metrics.metric import Better

NOT_KNOWN = "n/a"


@dataclass(frozen=True)
class Column:
    """A figure of the summary: its name in the table, its heading, its meaning and its format."""

    name: str
    heading: str
    meaning: str
    digits: int = 3
    unit: str = ""
    metric: str = ""  # of METRICS or POOLED, of which it is a value or a mean

    @property
    def better(self) -> Better | None:
        """Which values are better, as the metric says; a time has no metric."""
        return {**METRICS, **POOLED}[self.metric].better if self.metric else None


HEADLINE = (
    Column(
        "accuracy",
        "Accuracy",
        "share of the clean examples that are classified right, from 0 to 1",
        metric="accuracy",
    ),
    Column("clean_ece", "Clean ECE", "ECE on the clean examples, from 0 to 1", metric="ece"),
    Column(
        "mean_micro_ece",
        "Mean micro ECE",
        "one ECE over all levels of a shift pooled, the clean one included; the mean over the "
        "tested shifts",
        metric="micro_ece",
    ),
    Column(
        "mean_macro_ece",
        "Mean macro ECE",
        "the mean of the ECEs of a shift's levels; the mean over the tested shifts",
        metric="macro_ece",
    ),
    Column(
        "last_level_confidence",
        "Last-level confidence",
        "mean confidence at the strongest level of a shift, from 0 to 1; the mean over the tested "
        "shifts",
        metric="confidence",
    ),
    Column(
        "training_seconds",
        "Training",
        "wall time of one training run, in seconds",
        digits=1,
        unit=" s",
    ),
)
SELECTION = (
    Column("selection_micro_ece", "Mean micro ECE", "as above, over these shifts"),
    Column("selection_macro_ece", "Mean macro ECE", "as above, over these shifts"),
)
