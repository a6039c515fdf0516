"""Shifted data that others have stored: one file a layout, and the table of them.

They are ladders like any shift, but their levels come from files, read one batch at a time. In a
study they go by ``LAYOUT:CORRUPTION``, as ``cifar10_c:fog``.

Adding one: write ``shifts/stored/NAME.py`` with ``open_ladder(corruption, path)`` and add a line to
``STORED``.
"""

from collections.abc import Callable

from falconcal.errors import unknown
from falconcal.registry import check_name
from falconcal.shifts.stored import cifar10_c, imagenet_c, mnist_c, objectnet
from falconcal.shifts.stored.ladder import StoredShift

Open = Callable[[str, str | None], StoredShift]

STORED: dict[str, tuple[Open, str]] = {
    "cifar10_c": (cifar10_c.open_ladder, cifar10_c.SUMMARY),
    "mnist_c": (mnist_c.open_ladder, mnist_c.SUMMARY),
    "imagenet_c": (imagenet_c.open_ladder, imagenet_c.SUMMARY),
    "objectnet": (objectnet.open_ladder, objectnet.SUMMARY),
}

__all__ = ["STORED", "StoredShift", "find_stored", "is_stored"]


def is_stored(name: str) -> bool:
    """Tell whether a name is that of a stored ladder, ``LAYOUT`` or ``LAYOUT:CORRUPTION``."""
    return name.partition(":")[0] in STORED


def find_stored(name: str, path: str | None = None) -> StoredShift:
    """Return a stored ladder by name; ``path`` is its folder, or the one in which that lies."""
    check_name("stored shift", name)
    layout, _, corruption = name.partition(":")
    if layout not in STORED:
        raise unknown("layout of stored data", layout, STORED)
    open_ladder, _ = STORED[layout]
    return open_ladder(corruption, path)
