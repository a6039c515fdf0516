"""A metric as a record: its function, what that needs, which values are better, how it is shown.

Everything that is known of a metric stands in its record: tables, reports, intervals and pages read
it there.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from falconcal.errors import UserError
from falconcal.metrics.predictions import Scores

Need = Literal["labels", "distribution", "all_classes", "bins", "levels"]
Better = Literal["higher", "lower", "nearer"]
Resampling = Literal[
    "one_by_one",  # each resample is measured by itself: right for every function
    "mean",  # of ``values``, for all resamples at once
    "proportion",  # the same of values that are 0 or 1
    "bin_gaps",  # sum of the gaps of bins of equal width
    "equal_mass_gaps",  # sum of the gaps of bins of equal mass
    "largest_gap",  # the largest gap of a bin of equal width
    "root_mean_square_gap",  # of bins of equal mass
    "class_gaps",  # sum of the gaps of each class's own bins
    "smoothed_gaps",  # gaps on a fine grid, smoothed
    "risk_coverage",  # errors in the order of confidence
]


@dataclass(frozen=True)
class Metric:
    """All that is known of a metric; calling the record calls its function.

    Raises:
        UserError: If ``resampling`` says that the metric is a mean and ``values`` does not say of
            what, or the other way round.

    Example:
        >>> from falconcal.metrics import METRICS
        >>> ece = METRICS["ece"]
        >>> ece.label, ece.better, ece.best, ece.needs
        ('ECE', 'lower', 0.0, ('labels', 'bins'))
        >>> round(ece([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """

    function: Callable[..., float]
    """The metric: predictions, scores or arrays in, a number out."""
    label: str
    """Its name in running text and on axes, such as "mean entropy"."""
    needs: tuple[Need, ...] = ("labels",)
    """What it takes besides confidences: the true classes; the ``distribution`` or what scores keep
    of it, so that the top prediction alone is not enough; the probabilities of all classes (then it
    takes ``Predictions`` alone); a number of ``bins``; the levels of a shift."""
    better: Better | None = "lower"
    """Which values are better: higher ones, lower ones, those nearer to the best, or (None) none by
    themselves."""
    best: float | None = 0.0
    """The best value there is, if there is one."""
    limits: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest value it can take."""
    resampling: Resampling = "one_by_one"
    """How its value in bootstrap resamples is found; ``falconcal.evidence`` knows the words."""
    values: Callable[[Scores], Tensor] | None = None
    """For a mean: its value of each example, (N,)."""
    unit: str = ""
    """The unit of its values, if they have one."""
    style: str = ".3f"
    """The format of its values in tables and figures."""

    def __post_init__(self) -> None:
        if (self.resampling in ("mean", "proportion")) != (self.values is not None):
            raise UserError(
                f"expected values of each example for a metric that is a mean, and for no other, "
                f"got resampling={self.resampling!r} and values={self.values!r}."
            )

    def __call__(self, data: Any, *more: Any, **settings: Any) -> float:
        """Return the metric of predictions, scores, or probabilities and labels."""
        return self.function(data, *more, **settings)

    @property
    def heading(self) -> str:
        """The label as the heading of a column."""
        return self.label[0].upper() + self.label[1:]

    @property
    def axis_title(self) -> str:
        """The label with its unit."""
        return f"{self.label} in {self.unit}" if self.unit else self.label

    @property
    def meaning(self) -> str:
        """The first sentence of the function's docstring, without its full stop."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].removesuffix(".")

    @property
    def direction(self) -> str:
        """Which values are better, in words; empty where none are by themselves."""
        words = {"higher": "higher is better", "lower": "lower is better"}
        return words.get(self.better or "", f"best at {self.best:g}" if self.better else "")

    @property
    def summary(self) -> str:
        """What the metric is and which values are better, in one line."""
        return f"{self.meaning}; {self.direction}" if self.direction else self.meaning
