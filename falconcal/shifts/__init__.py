"""Shifts: one file per family, and the table of them.

To add one, write it in the file of its family (or a new one) and add a line to ``SHIFTS``.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import or_

from falconcal.core.registry import check_name, look_up
from falconcal.core.trust import PERSON, CodeKind, Trust
from falconcal.shifts.affine import Centre, affine_shifts
from falconcal.shifts.corruptions import corruption_shifts
from falconcal.shifts.crafted import crafted_shifts
from falconcal.shifts.fgsm import adversarial_shifts
from falconcal.shifts.matched_levels import matched_strengths
from falconcal.shifts.noise_blur_contrast import noise_blur_contrast_shifts
from falconcal.shifts.outlier_sets import OUTLIERS, Outliers, find_outliers, outliers_from
from falconcal.shifts.sensor_faults import sensor_shifts
from falconcal.shifts.shift import Shift, shift_context, shift_inputs
from falconcal.shifts.stored import STORED, StoredShift, find_stored, is_stored
from falconcal.shifts.stored.labelled_parts import shift_from
from falconcal.shifts.typos import typo_shifts, typos
from falconcal.shifts.words import word_shifts

SHIFTS: dict[str, Shift] = {
    **affine_shifts(),
    **noise_blur_contrast_shifts(),
    **corruption_shifts(),
    **crafted_shifts(),
    **sensor_shifts(),
    **word_shifts(),
    **typo_shifts(),
    **adversarial_shifts(),
}
"""The shifts that are computed, by name."""

SHIFT_GROUPS: dict[str, tuple[str, ...]] = {
    "affine": tuple(affine_shifts()),
    "corruptions": tuple(corruption_shifts()),
}
"""Names for several shifts at once."""

AnyShift = Shift | StoredShift
"""A shift that is computed, or one that is read from files."""

SHIFT_CODE = CodeKind("shift", "a falconcal.Shift", lambda thing: isinstance(thing, Shift))

__all__ = [
    "OUTLIERS",
    "SHIFTS",
    "SHIFT_GROUPS",
    "STORED",
    "AnyShift",
    "Outliers",
    "Shift",
    "StoredShift",
    "adversarial_shifts",
    "affine_shifts",
    "corruption_shifts",
    "crafted_shifts",
    "expand_groups",
    "find_outliers",
    "find_shift",
    "find_stored",
    "kin_among",
    "matched_strengths",
    "named_shifts",
    "noise_blur_contrast_shifts",
    "outliers_from",
    "sensor_shifts",
    "shift_context",
    "shift_from",
    "shift_inputs",
    "typo_shifts",
    "typos",
    "word_shifts",
]


def find_computed_shift(name: str, centre: Centre = "keras", trust: Trust = PERSON) -> Shift:
    """Return a shift that is computed by name, or several in turn, as ``a | b``."""
    if "|" in name:
        return reduce(
            or_, (find_computed_shift(part.strip(), centre, trust) for part in name.split("|"))
        )
    found = look_up(SHIFT_CODE, name, {**SHIFTS, **affine_shifts(centre)}, trust)
    return replace(found, name=name)  # a user's own goes by the name it was asked for


def named_shifts(names: Iterable[str]) -> set[str]:
    """Return the single shifts in names such as ``a | b``.

    Args:
        names: Names of shifts, also composed ones.

    Returns:
        The names of all their parts.

    Example:
        >>> from falconcal.shifts import named_shifts
        >>> sorted(named_shifts(["shear | contrast", "wave"]))
        ['contrast', 'shear', 'wave']
    """
    return {part.strip() for name in names for part in name.split("|")}


def kin_among(shifts: Iterable[AnyShift], families: Iterable[str]) -> list[str]:
    """Return the names of the shifts that are kin of families that something was fitted on.

    A shift is kin of a family that is itself, that it resembles, or that resembles what it
    resembles.

    Args:
        shifts: The shifts in question, such as those that a study tests.
        families: Names of the families that were fitted on, also composed ones.

    Returns:
        The names in the order of the shifts.

    Example:
        >>> from falconcal.shifts import SHIFTS, kin_among
        >>> tested = [SHIFTS[name] for name in ("corrupt_shot_noise", "corrupt_fog", "contrast")]
        >>> kin_among(tested, ["gaussian_noise", "contrast"])
        ['corrupt_shot_noise', 'contrast']
    """
    parts = named_shifts(families)
    fitted = parts.union(*(SHIFTS[name].kin for name in parts & set(SHIFTS)))
    return [shift.name for shift in shifts if not fitted.isdisjoint({shift.name, *shift.kin})]


def expand_groups(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of shifts with every group replaced by its shifts, each name once.

    Args:
        names: Names of shifts, and of ``SHIFT_GROUPS``.

    Returns:
        The names of the shifts, in order.

    Example:
        >>> from falconcal.shifts import expand_groups
        >>> len(expand_groups(["affine", "shear", "fgsm"]))
        10
    """
    return tuple(dict.fromkeys(one for name in names for one in SHIFT_GROUPS.get(name, (name,))))


def find_shift(
    name: str, centre: Centre = "keras", stored: str | None = None, trust: Trust = PERSON
) -> AnyShift:
    """Return a shift by name.

    Args:
        name: A name in ``SHIFTS``, two of them in turn as ``a | b``, stored data as
            ``cifar10_c:fog``, or ``package.module:Name`` of your own ``Shift``.
        centre: The centre of affine shifts, see ``affine_shifts``.
        stored: The folder of stored data; by default it is looked for where data is kept.
        trust: Whose code may be named, where a file names it.

    Returns:
        The shift.

    Raises:
        UsageError: The name is not known.
        UserError: Stored data is not there.

    Example:
        >>> from falconcal.shifts import find_shift
        >>> find_shift("shear | contrast").levels
        range(0, 6)
    """
    check_name("shift", name)
    return (
        find_stored(name, stored) if is_stored(name) else find_computed_shift(name, centre, trust)
    )
