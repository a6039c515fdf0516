"""Freed memory that a process keeps, so that the next step need not ask the system for it again.

The C library of most Linux systems gives large blocks back as soon as they are freed. A training
step, or a pass over a batch, asks for the same blocks again, and the system clears each page before
it hands it out: about half of the time of a recurrent network. With two of the library's own
settings (mallopt(3)) it keeps them. Elsewhere nothing here does anything.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# mallopt's numbers: from how many free bytes at its end on the heap is made smaller, and from what
# size on a block has pages of its own, which go back to the system when it is freed
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 2**31 - 1  # of a C int
LARGE_BLOCK = 2**30
LARGEST_OF_OLDER_VERSIONS = 2**25  # what they take for M_MMAP_THRESHOLD


@contextmanager
def freed_memory_kept(wanted: bool = True) -> Iterator[None]:
    """Keep freed memory inside, if wanted; what is still free at the end is given back.

    The library cannot return to what it does by itself: after the first time large blocks stay in
    its heap until the end of such a block of code, or until the process ends.
    """
    library = _c_library() if wanted else None
    if library is None:
        yield
        return
    _raise_thresholds()
    try:
        yield
    finally:
        library.malloc_trim(0)


@cache
def _raise_thresholds() -> None:
    """Set both thresholds, once per process: each call looks through the whole heap."""
    library = _c_library()
    assert library is not None
    library.mallopt(M_TRIM_THRESHOLD, LARGEST)
    if not library.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK):
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_OF_OLDER_VERSIONS)


@cache
def _c_library() -> ctypes.CDLL | None:
    """Return the C library if it is one that has these settings: glibc, not musl or macOS."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if all(hasattr(library, name) for name in ("mallopt", "malloc_trim")) else None
