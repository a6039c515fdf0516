"""The figures of the summary: their names in tables, their headings, what they mean."""

from dataclasses import dataclass

NOTHING = "n/a"


@dataclass(frozen=True)
class Column:
    """A figure of the summary: its name in the table, its heading, its meaning and its format."""

    name: str
    heading: str
    meaning: str
    digits: int = 3
    unit: str = ""


HEADLINE = (
    Column(
        "accuracy",
        "Accuracy",
        "share of the clean examples that are classified right, from 0 to 1",
    ),
    Column("clean_ece", "Clean ECE", "ECE on the clean examples, from 0 to 1"),
    Column(
        "mean_micro_ece",
        "Mean micro ECE",
        "one ECE over all levels of a shift pooled, the clean one included; the mean over the "
        "tested shifts",
    ),
    Column(
        "mean_macro_ece",
        "Mean macro ECE",
        "the mean of the ECEs of a shift's levels; the mean over the tested shifts",
    ),
    Column(
        "last_level_confidence",
        "Last-level confidence",
        "mean confidence at the strongest level of a shift, from 0 to 1; the mean over the tested "
        "shifts",
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
