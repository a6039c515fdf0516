"""What a fit on a ladder did, in numbers and in words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

NOTICEABLE = 0.01  # a difference of calibration errors below which they count as the same


@dataclass(frozen=True)
class CopyRecord:
    """One copy of the validation data: its accuracy, and its mean confidence before and after."""

    family: str
    level: int
    strength: float
    accuracy: float
    confidence_before: float
    confidence_after: float
    ece_before: float
    ece_after: float


@dataclass(frozen=True)
class LeftOutRecord:
    """Mean ECE over the levels of a family that was left out of a fit, on examples left out too.

    This is what to expect of a shift that nobody has foreseen. Clean and drifted data are in every
    fit, and only their examples are left out.

    Args:
        family: Its name; ``clean`` and ``drifted`` among them.
        ece_before: Mean ECE of the model as it is.
        ece_after: The same after a calibration that has not seen the family.
        is_outliers: Whether it is a set of outliers, on which no confidence above chance is right.

    Example:
        >>> from falconcal.recalibration import LeftOutRecord
        >>> LeftOutRecord("wave", ece_before=0.3, ece_after=0.1).family
        'wave'
    """

    family: str
    ece_before: float
    ece_after: float
    is_outliers: bool = False


@dataclass(frozen=True)
class FitRecord:
    """What a calibrator was fitted on, and what may be expected of it.

    Args:
        copies: One entry per copy of the validation data.
        left_out: One entry per family, judged while left out; ``clean`` and ``drifted`` among them.
        note: What else is to be said, such as families that were left out on purpose.

    Example:
        >>> from falconcal.recalibration import FitRecord
        >>> FitRecord((), note="Fitted on clean data alone.").verdict()
        ['Fitted on clean data alone.']
    """

    copies: tuple[CopyRecord, ...]
    left_out: tuple[LeftOutRecord, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        lines = [
            f"{'family':18}{'level':>6}{'strength':>10}{'accuracy':>10}{'before':>8}{'after':>8}"
        ]
        lines += [
            f"{one.family:18}{one.level:6}{one.strength:10.3g}{one.accuracy:10.3f}"
            f"{one.confidence_before:8.3f}{one.confidence_after:8.3f}"
            for one in self.copies
        ]
        return "\n".join([*lines, "", *self.verdict()])

    def with_drift(self, judged: LeftOutRecord | None) -> "FitRecord":
        """Return the record with what was found on drifted examples; None if they are too few."""
        others = tuple(one for one in self.left_out if one.family != "drifted")
        if judged is not None:
            return replace(self, left_out=(*others, judged))
        few = "The drifted examples are too few to say what to expect of later ones."
        return replace(self, left_out=others, note=f"{self.note} {few}".strip())

    def headline(self) -> str:
        """Return in one sentence where calibration is better, worse or about the same.

        Example:
            >>> from falconcal.recalibration import FitRecord, LeftOutRecord
            >>> judged = LeftOutRecord("clean", 0.02, 0.02), LeftOutRecord("wave", 0.3, 0.1)
            >>> FitRecord((), judged).headline()
            'At home about the same; under shifts that were not fitted on better calibrated.'
        """
        places = (
            ("at home", self._named("clean")),
            ("on later data", self._named("drifted")),
            ("under shifts that were not fitted on", self._crafted()),
            ("on outliers that were not fitted on", self._outliers()),
        )
        said = [f"{where} {_change(judged)}" for where, judged in places if judged]
        if not said:
            return "What the calibration brings was not measured."
        words = "; ".join(said)
        return f"{words[0].upper()}{words[1:]}."

    def figures(self) -> list[tuple[str, float, float]]:
        """Return where, and the calibration error before and after: the pooled figures first."""
        crafted = self._crafted()
        groups = {
            "at home": self._named("clean"),
            "later data": self._named("drifted"),
            f"mean of {len(crafted)} crafted shifts": crafted,
        }
        found = [(where, *_means(judged)) for where, judged in groups.items() if judged]
        single = [(one.family, one.ece_before, one.ece_after) for one in crafted]
        outside = [
            (f"outliers, {one.family}", one.ece_before, one.ece_after) for one in self._outliers()
        ]
        return [*found, *single, *outside]

    def details(self) -> list[str]:
        """Return what else is to be known: how it was judged, and what was not tested."""
        said = [self.note] if self.note else []
        if self._crafted():
            said.append("Judged on examples, and under crafted shifts, that were not fitted on.")
            said.append("Real shifts that are unlike all of these were not tested.")
        elif self.left_out:
            said.append("Judged on examples that were not fitted on. No other shift was tested.")
        return said

    def _named(self, family: str) -> list[LeftOutRecord]:
        return [one for one in self.left_out if one.family == family]

    def _crafted(self) -> list[LeftOutRecord]:
        others = [one for one in self.left_out if one.family not in ("clean", "drifted")]
        return [one for one in others if not one.is_outliers]

    def _outliers(self) -> list[LeftOutRecord]:
        return [one for one in self.left_out if one.is_outliers]

    def verdict(self) -> list[str]:
        """Return what to expect, in sentences."""
        said = [self.note] if self.note else []
        crafted = self._crafted()
        places = {
            "At home, on examples not fitted on: calibration error": self._named("clean"),
            "On drifted examples not fitted on:": self._named("drifted"),
            "Under crafted shifts that were left out of the fit:": crafted,
            "On outliers that were left out of the fit:": self._outliers(),
        }
        for words, judged in places.items():
            if judged:
                said.append(f"{words} {_before_and_after(judged)}")
        if crafted:
            said.append("Real shifts that are unlike all of these were not tested.")
        return said


def _means(judged: Sequence[LeftOutRecord]) -> tuple[float, float]:
    before, after = ([getattr(one, name) for one in judged] for name in ("ece_before", "ece_after"))
    return fmean(before), fmean(after)


def _before_and_after(judged: Sequence[LeftOutRecord]) -> str:
    before, after = _means(judged)
    families = f", on average over {len(judged)} families" if len(judged) > 1 else ""
    return f"{before:.3f} before, {after:.3f} after{families}."


def _change(judged: Sequence[LeftOutRecord]) -> str:
    before, after = _means(judged)
    if abs(after - before) < NOTICEABLE:
        return "about the same"
    return "better calibrated" if after < before else "worse calibrated"
