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

    Example:
        >>> from falconcal.recalibration import LeftOutRecord
        >>> LeftOutRecord("wave", ece_before=0.3, ece_after=0.1).family
        'wave'
    """

    family: str
    ece_before: float
    ece_after: float


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
        clean, drifted, others = self._judged()
        places = (
            ("at home", clean and [clean]),
            ("on later data", drifted and [drifted]),
            ("under shifts that were not fitted on", others),
        )
        said = [f"{where} {_change(judged)}" for where, judged in places if judged]
        if not said:
            return "What the calibration brings was not measured."
        words = "; ".join(said)
        return f"{words[0].upper()}{words[1:]}."

    def figures(self) -> list[tuple[str, float, float]]:
        """Return where, and the calibration error before and after: the pooled figures first."""
        clean, drifted, others = self._judged()
        rows = [("at home", clean), ("later data", drifted)]
        found = [(where, one.ece_before, one.ece_after) for where, one in rows if one is not None]
        if others:
            found.append((f"mean of {len(others)} crafted shifts", *_means(others)))
        return [*found, *((one.family, one.ece_before, one.ece_after) for one in others)]

    def details(self) -> list[str]:
        """Return what else is to be known: how it was judged, and what was not tested."""
        said = [self.note] if self.note else []
        if self._judged()[2]:
            said.append("Judged on examples, and under crafted shifts, that were not fitted on.")
            said.append("Real shifts that are unlike all of these were not tested.")
        elif self.left_out:
            said.append("Judged on examples that were not fitted on. No other shift was tested.")
        return said

    def _judged(
        self,
    ) -> tuple[LeftOutRecord | None, LeftOutRecord | None, list[LeftOutRecord]]:
        """Return what was found on clean data, on drifted data, and under crafted shifts."""
        clean = next((one for one in self.left_out if one.family == "clean"), None)
        drifted = next((one for one in self.left_out if one.family == "drifted"), None)
        return clean, drifted, [one for one in self.left_out if one not in (clean, drifted)]

    def verdict(self) -> list[str]:
        """Return what to expect, in sentences."""
        said = [self.note] if self.note else []
        clean, drifted, others = self._judged()
        if clean is not None:
            said.append(
                f"At home, on examples not fitted on: calibration error {clean.ece_before:.3f} "
                f"before, {clean.ece_after:.3f} after."
            )
        if drifted is not None:
            said.append(
                f"On drifted examples not fitted on: {drifted.ece_before:.3f} before, "
                f"{drifted.ece_after:.3f} after."
            )
        if others:
            before, after = _means(others)
            said.append(
                f"Under crafted shifts that were left out of the fit: {before:.3f} before, "
                f"{after:.3f} after, on average over {len(others)} families."
            )
            said.append("Real shifts that are unlike all of these were not tested.")
        return said


def _means(judged: Sequence[LeftOutRecord]) -> tuple[float, float]:
    before, after = ([getattr(one, name) for one in judged] for name in ("ece_before", "ece_after"))
    return fmean(before), fmean(after)


def _change(judged: Sequence[LeftOutRecord]) -> str:
    before, after = _means(judged)
    if abs(after - before) < NOTICEABLE:
        return "about the same"
    return "better calibrated" if after < before else "worse calibrated"
