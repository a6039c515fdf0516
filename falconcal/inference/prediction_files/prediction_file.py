"""What was read from a file of predictions."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from falconcal.errors import UserError
from falconcal.metrics.predictions import PredictionRecord, Predictions

if TYPE_CHECKING:
    import altair


@dataclass(frozen=True, eq=False)
class PredictionFile:
    r"""Predictions that were read from a file, with the names of classes and groups.

    Args:
        path: The file.
        record: The N predictions; of a file without the probabilities of all classes, scores.
        classes: The names of the C classes, in the order of the probabilities.
        groups: The name of each example's group, (N,), if a column of groups was asked for.
        found: Which form the file has, in words.

    Example:
        >>> import pathlib, falconcal
        >>> table = "label,p_cat,p_dog\ncat,0.9,0.1\ndog,0.2,0.8\n"
        >>> _ = pathlib.Path("predictions.csv").write_text(table)
        >>> read = falconcal.read_predictions("predictions.csv")
        >>> read.classes
        ('cat', 'dog')
        >>> read.found
        "one probability per class in columns 'p_cat' to 'p_dog' of 2 classes"
    """

    path: Path
    record: PredictionRecord
    classes: tuple[str, ...]
    groups: tuple[str, ...] | None
    found: str

    @property
    def predictions(self) -> Predictions:
        """The predictions of all classes; a file of top predictions has none."""
        if not isinstance(self.record, Predictions):
            raise UserError(
                f"{self.path}: expected a probability per class, got {self.found}: use record, "
                "the scores of its top predictions."
            )
        return self.record

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what was found, and the figures of the predictions."""
        return f"<p>{escape(f'{self.path.name}: {self.found}')}</p>{self.record._repr_html_()}"

    def plot(self) -> "altair.LayerChart":
        """Return the reliability diagram of the predictions as an Altair chart."""
        return self.record.plot()
