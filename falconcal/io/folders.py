"""Find files in folders by extension, and refuse what is not a regular file."""

import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

from falconcal.errors import UserError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def files_below(folder: Path, endings: Collection[str]) -> list[Path]:
    """Return the files with these extensions in a folder and below it, sorted.

    Hidden files, whose names begin with a dot, are left out: they are thumbnails and copies that an
    editor or a file manager has made, not data.
    """
    found = []
    for where, below, files in os.walk(folder, onerror=_refuse):
        below[:] = [name for name in below if not name.startswith(".")]
        wanted = [name for name in files if Path(name).suffix.lower() in endings]
        found += [Path(where) / name for name in wanted if not name.startswith(".")]
    return sorted(found)


def irregular(path: Path) -> str | None:
    """Return why a path is not a regular file or a link to one; None if it is.

    Reading anything else may never end: a named pipe waits until something is written to it.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"it cannot be opened ({error.strerror})"
    if stat.S_ISREG(mode):
        return None
    return f"expected a regular file, it is {KINDS.get(stat.S_IFMT(mode), 'something else')}"


def _refuse(error: OSError) -> NoReturn:
    raise UserError(f"cannot read the folder {error.filename}: {error.strerror}.")
