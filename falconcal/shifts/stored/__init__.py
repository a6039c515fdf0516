"""Shifted data that others have stored: one file per layout, and the table of them.

They have levels like any shift, but the levels come from files, read one batch at a time. In a
study they go by ``LAYOUT:CORRUPTION``, as ``cifar10_c:fog``.

To add one, write ``shifts/stored/NAME.py`` with ``open_NAME(corruption, path)`` and add a line to
``STORED``.
"""

from collections.abc import Callable

from falconcal.core.registry import check_name
from falconcal.errors import unknown_name_error
from falconcal.shifts.stored.cifar10_c import open_cifar10_c
from falconcal.shifts.stored.imagenet_c import open_imagenet_c
from falconcal.shifts.stored.mnist_c import open_mnist_c
from falconcal.shifts.stored.objectnet import OBJECTNET_SUMMARY, open_objectnet
from falconcal.shifts.stored.stored_shift import StoredShift

Open = Callable[[str, str | None], StoredShift]

STORED: dict[str, tuple[Open, str]] = {
    "cifar10_c": (open_cifar10_c, "CIFAR-10-C on disk, severities 1 to 5, as cifar10_c:fog"),
    "mnist_c": (open_mnist_c, "MNIST-C on disk, one severity, as mnist_c:fog"),
    "imagenet_c": (open_imagenet_c, "ImageNet-C on disk, severities 1 to 5, as imagenet_c:fog"),
    "objectnet": (open_objectnet, OBJECTNET_SUMMARY),
}
"""The layouts of stored data by name: the function that opens one, and one line on it."""

__all__ = ["STORED", "StoredShift", "find_stored", "is_stored"]


def is_stored(name: str) -> bool:
    """Return whether a name is that of stored data, ``LAYOUT`` or ``LAYOUT:CORRUPTION``."""
    return name.partition(":")[0] in STORED


def find_stored(name: str, path: str | None = None) -> StoredShift:
    """Return a stored shift by name.

    Args:
        name: ``LAYOUT:CORRUPTION``, as ``cifar10_c:fog``; ``STORED`` has the layouts.
        path: Its folder, or the folder above it; by default it is looked for where data is kept.

    Returns:
        The shift, whose files are opened when a level is asked for.

    Raises:
        UsageError: The layout is not known.
        UserError: The folder or the corruption is not there.

    Example:
        >>> import numpy, pathlib
        >>> from falconcal.shifts import find_stored
        >>> folder = pathlib.Path("mnist_c/fog")
        >>> folder.mkdir(parents=True)
        >>> numpy.save(folder / "test_images.npy", numpy.zeros((2, 28, 28, 1), "uint8"))
        >>> numpy.save(folder / "test_labels.npy", numpy.array([3, 7]))
        >>> find_stored("mnist_c:fog", "mnist_c").levels
        range(0, 2)
    """
    check_name("stored shift", name)
    layout, _, corruption = name.partition(":")
    if layout not in STORED:
        raise unknown_name_error("layout of stored data", layout, STORED)
    open_stored, _ = STORED[layout]
    return open_stored(corruption, path)
