"""Labelled data of one's own as the levels of a shift: later months, another site, another camera.

A level is a part of any dataset, loaded when its turn comes. Classes are matched by their names;
nothing else is changed, so a level has the shape and the range of the data that it is beside.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from falconcal.data import Examples, Images, Part
from falconcal.data.part import count_tokens
from falconcal.data.streamed_images import StreamedImages, framed_alike
from falconcal.data.subsets import sample_indices, select
from falconcal.errors import UserError, described
from falconcal.shifts.stored.stored_shift import StoredLevel, StoredShift

LoadPart = Callable[[], Part]


@dataclass(frozen=True, eq=False)
class PartLevels:
    """Opens the levels of a shift that are parts; some examples may be kept from testing."""

    name: str
    parts: Sequence[LoadPart]
    kept: Mapping[int, int | None] = field(default_factory=dict)  # by level; None keeps all

    def tested(self, level: int, data: Part) -> StoredLevel:
        """Return a level without the examples that are kept for fitting."""
        part = self._part(level, data)
        which = torch.arange(len(part))
        if level in self.kept:
            which = which[~torch.isin(which, self._kept(level, len(part)))]
        if not len(which):
            raise UserError(
                f"level {level} of {self.name} has {len(part)} examples, all of which are kept for "
                "fitting: keep fewer, or do not test it."
            )
        return StoredLevel(part.labels[which], partial(_read, part, which))

    def for_fitting(self, level: int, data: Part) -> Part:
        """Return the examples of a level that are kept for fitting, never tested."""
        part = self._part(level, data)
        return select(part, self._kept(level, len(part)))

    def _part(self, level: int, data: Part) -> Part:
        return alike(f"level {level} of {self.name}", self.parts[level - 1](), data)

    def _kept(self, level: int, total: int) -> Tensor:
        count = self.kept[level]
        return sample_indices(total, total if count is None else count)


def shift_from(name: str, parts: Sequence[Part]) -> StoredShift:
    """Return labelled parts as the levels of a shift, from level 1 on.

    Args:
        name: A name for tables and figures.
        parts: One part per level, such as one per month; classes are matched by name.

    Returns:
        The shift, for ``falconcal.evaluate``.

    Raises:
        UserError: A part is not one, or, once a level is opened, does not fit the data.

    Example:
        >>> import falconcal
        >>> march, april = (falconcal.load_dataset("digits").test.first(n) for n in (100, 200))
        >>> later = falconcal.shifts.shift_from("later", [march, april])
        >>> later.levels
        range(0, 3)
    """
    for part in parts:
        if not isinstance(part, Part):
            raise UserError(f"expected parts of datasets as levels, got {described(part)}.")
    return shift_of(PartLevels(name, [partial(_as_it_is, part) for part in parts]))


def shift_of(levels: PartLevels) -> StoredShift:
    """Return the shift whose levels these are."""
    count = len(levels.parts)
    if count == 0:
        raise UserError(f"expected at least one level of {levels.name}, got none.")
    return StoredShift(levels.name, count, levels.tested, "labelled data of your own", True)


def alike(what: str, part: Part, data: Part) -> Part:
    """Return a part with the data's framing and numbers of classes; refuse one of another kind."""
    part = framed_alike(what, part, data)
    if part.shape != data.shape or part.bounds != data.bounds:
        raise UserError(
            f"expected {what} of the data's shape {data.shape} and range {data.bounds}, got "
            f"{part.shape} and {part.bounds}: prepare both alike."
        )
    if data.tokens is not None and (count_tokens(part) or 0) > data.tokens:
        raise UserError(f"expected {what} with tokens below {data.tokens}: encode both alike.")
    return _renumbered(what, part, data.classes)


def _renumbered(what: str, part: Part, classes: tuple[str, ...] | None) -> Part:
    """Return a part whose labels are numbers of these classes, matched by name."""
    if part.classes is None or classes is None or part.classes == classes:
        return part
    strange = [name for name in part.classes if name not in classes]
    if strange:
        raise UserError(
            f"expected {what} of the classes {', '.join(classes)}, got {strange[0]!r}: name the "
            "classes alike, and give examples of no known class as outliers."
        )
    numbers = torch.tensor([classes.index(name) for name in part.classes])
    ours = isinstance(part, Examples | Images | StreamedImages)
    known = part if ours else part.first(len(part))  # a user's own kind of part, in memory
    return replace(known, labels=numbers[part.labels], classes=classes)  # type: ignore[type-var]


def _read(part: Part, which: Tensor, rows: slice) -> Tensor:
    chosen = which[rows]
    inputs: Tensor = select(part, chosen).first(len(chosen)).inputs
    return inputs


def _as_it_is(part: Part) -> Part:
    return part
