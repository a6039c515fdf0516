"""Data that is decoded once, then kept as arrays in the user's cache and memory-mapped."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy

from falconcal.data.locations import cache_folder
from falconcal.io.atomic import atomic_path

Arrays = tuple[numpy.ndarray, ...]


def cached_arrays(
    name: str, sources: Sequence[Path], make: Callable[[], Arrays], *recipe: object
) -> Arrays:
    """Return arrays made of files, the first time by ``make``, then from the cache.

    They are made again when a file's path, size or time has changed, or the recipe.
    """
    folder = cache_folder() / "decoded" / f"{name}-{_key(sources, recipe)}"
    found = _read(folder)
    if found is None:
        found = make()
        try:
            _write(folder, found)
        except OSError:  # a cache that cannot be written to costs time, not the data
            return found
    return _read(folder) or found


def _key(sources: Sequence[Path], recipe: tuple[object, ...]) -> str:
    files = [
        (str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sources
    ]
    return hashlib.sha256(repr((files, recipe)).encode()).hexdigest()[:16]


def _read(folder: Path) -> Arrays | None:
    """Return the arrays of a folder, None if it is not complete or a file is damaged."""
    try:
        count = int((folder / "count").read_text())
        files = [folder / f"{number}.npy" for number in range(count)]
        # copy on write: torch wants memory that may be written to, the file stays as it is
        return tuple(numpy.load(file, mmap_mode="c", allow_pickle=False) for file in files)
    except (OSError, ValueError):
        return None


def _write(folder: Path, arrays: Arrays) -> None:
    for number, array in enumerate(arrays):
        with atomic_path(folder / f"{number}.npy") as temporary, temporary.open("wb") as file:
            numpy.save(file, array, allow_pickle=False)
    with atomic_path(folder / "count") as temporary:
        temporary.write_text(str(len(arrays)))
