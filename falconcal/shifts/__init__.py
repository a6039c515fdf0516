"""Shifts: one file a family, and the table of them.

Adding one: write it in the file of its family (or a new one) and add a line to ``SHIFTS``.
"""

from dataclasses import replace
from functools import reduce
from operator import or_

from falconcal.registry import check_name, look_up
from falconcal.shifts.adversarial import adversarial_shifts
from falconcal.shifts.affine import Centre, affine_shifts
from falconcal.shifts.corruptions import corruption_shifts
from falconcal.shifts.outliers import OUTLIERS, Outliers, find_outliers, outliers_of
from falconcal.shifts.plain import plain_shifts
from falconcal.shifts.shift import Shift, facts_of
from falconcal.shifts.signal import signal_shifts
from falconcal.shifts.stored import STORED, StoredShift, find_stored, is_stored
from falconcal.shifts.typos import typo_shifts, typos
from falconcal.shifts.words import word_shifts
from falconcal.trust import PERSON, CodeKind, Trust

SHIFTS: dict[str, Shift] = {
    **affine_shifts(),
    **plain_shifts(),
    **corruption_shifts(),
    **signal_shifts(),
    **word_shifts(),
    **typo_shifts(),
    **adversarial_shifts(),
}

Ladder = Shift | StoredShift
KIND = CodeKind("shift", "a falconcal.Shift", lambda thing: isinstance(thing, Shift))

__all__ = [
    "OUTLIERS",
    "SHIFTS",
    "STORED",
    "Ladder",
    "Outliers",
    "Shift",
    "StoredShift",
    "adversarial_shifts",
    "affine_shifts",
    "corruption_shifts",
    "facts_of",
    "find_ladder",
    "find_outliers",
    "find_shift",
    "find_stored",
    "outliers_of",
    "plain_shifts",
    "signal_shifts",
    "typo_shifts",
    "typos",
    "word_shifts",
]


def find_shift(name: str, centre: Centre = "keras", trust: Trust = PERSON) -> Shift:
    """Return a shift by its name in the table, an affine one about the given centre.

    ``a | b`` is shift ``a`` and then ``b``. ``trust`` is whose code may be named, where a file
    names it.
    """
    if "|" in name:
        return reduce(or_, (find_shift(part.strip(), centre, trust) for part in name.split("|")))
    found = look_up(KIND, name, {**SHIFTS, **affine_shifts(centre)}, trust)
    return replace(found, name=name)  # one from outside goes by the name it was asked for


def find_ladder(
    name: str, centre: Centre = "keras", stored: str | None = None, trust: Trust = PERSON
) -> Ladder:
    """Return a shift by its name, or one that others stored, as ``cifar10_c:fog``.

    ``stored`` is the folder of the stored data, else it is looked for where data is kept.
    """
    check_name("shift", name)
    return find_stored(name, stored) if is_stored(name) else find_shift(name, centre, trust)
