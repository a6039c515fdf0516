"""What every reader asks of a file before it is opened, and of another library's complaint."""

import os
from pathlib import Path

from falconcal.errors import UserError


def check_regular(path: Path) -> None:
    """Refuse what is not a regular file: a pipe or a device would be waited for without end."""
    if path.exists() and not path.is_file():
        kind = "folder" if path.is_dir() else "pipe or a device"
        raise UserError(f"{path}: expected a file, got a {kind}: name a regular file.")


def check_memory(where: str, size: int) -> None:
    """Refuse what declares more bytes than this machine has memory, before any is taken."""
    there = memory_of_machine()
    if there is not None and size > there:
        raise UserError(
            f"{where}: declares {size:,} bytes, this machine has {there:,} bytes of memory: is the "
            "file damaged? If it is whole, read it on a larger machine, or keep less in it."
        )


def memory_of_machine() -> int | None:
    """Return the bytes of memory of this machine, where the system says it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system has these numbers
        return None


def first_line(error: BaseException) -> str:
    """Return the beginning of another library's complaint."""
    return str(error).strip().partition("\n")[0].rstrip(".")
