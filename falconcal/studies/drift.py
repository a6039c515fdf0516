"""What a study says of drift: labelled data of one's own as levels, and what may be fitted on.

A level is the study's own dataset with other settings, such as ``{test = "march.csv"}``, or another
dataset by its name; in both cases the test part is taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from falconcal.core.registry import name_and_settings
from falconcal.core.settings import Count, settings
from falconcal.core.trust import Trust
from falconcal.data import Part, check_dataset, load_named_test, sample
from falconcal.errors import UsageError
from falconcal.shifts import SHIFT_GROUPS, SHIFTS, StoredShift
from falconcal.shifts.stored import STORED
from falconcal.shifts.stored.labelled_parts import PartLevels, shift_of

LevelEntry = str | dict[str, Any]  # a dataset by name, or settings that change the study's own


@settings
class DriftedSample:
    """Labelled examples of one level that calibrators may be fitted on, and that no run tests."""

    shift: str
    """A shift of the table ``drift``."""
    level: Count
    """Its level, from 1."""
    examples: Count | None = None
    """How many of its examples are kept for fitting, drawn by a fixed seed; None keeps all."""


@dataclass(frozen=True)
class Drift:
    """The drift of a study: its levels by name, and the sample that may be fitted on."""

    levels: Mapping[str, Sequence[LevelEntry]]
    drifted: DriftedSample | None
    dataset: str | dict[str, Any]
    trust: Trust
    most_levels: int | None = None
    most_examples: int | None = None

    def check(self) -> None:
        """Refuse names that are taken, levels that are no dataset, and a sample of no level."""
        for name, entries in self.levels.items():
            if name in SHIFTS or name in SHIFT_GROUPS or name in STORED:
                raise UsageError(f"drift.{name}: {name} is a shift of falconcal: choose another.")
            if not entries:
                raise UsageError(f"drift.{name}: expected a list of at least one level, got none.")
            for entry in entries:
                check_dataset(*self._entry(entry), self.trust)
        if self.drifted is not None:
            self._check_sample(self.drifted)

    def _check_sample(self, drifted: DriftedSample) -> None:
        if drifted.shift not in self.levels:
            raise UsageError(
                f"drifted.shift: expected a name of the table drift, got {drifted.shift!r}."
            )
        count = len(self.levels[drifted.shift])
        if drifted.level > count:
            raise UsageError(
                f"drifted.level: {drifted.shift} has levels 1 to {count}, got {drifted.level}."
            )

    def shift(self, name: str) -> StoredShift:
        """Return the shift of a name, with as many levels and examples as the study says."""
        return shift_of(self._part_levels(name, self.most_levels))

    def sample(self, data: Part) -> Part | None:
        """Return the labelled drifted examples that calibrators may be fitted on, if any."""
        if self.drifted is None:
            return None
        levels = self._part_levels(self.drifted.shift)
        return levels.for_fitting(self.drifted.level, data)

    def _part_levels(self, name: str, most: int | None = None) -> PartLevels:
        parts = [partial(self._load, entry) for entry in self.levels[name]]
        mine = self.drifted is not None and self.drifted.shift == name
        kept = {self.drifted.level: self.drifted.examples} if mine and self.drifted else {}
        return PartLevels(name, parts[:most], kept)

    def _load(self, entry: LevelEntry) -> Part:
        return sample(load_named_test(*self._entry(entry), self.trust), self.most_examples)

    def _entry(self, entry: LevelEntry) -> tuple[str, dict[str, Any]]:
        """Return the name and the settings of the dataset that an entry stands for."""
        if isinstance(entry, str) or "name" in entry:
            return name_and_settings("drift", entry)
        name, own = name_and_settings("dataset", self.dataset)
        return name, {**own, **entry}
