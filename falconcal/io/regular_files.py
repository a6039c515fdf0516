"""What every reader asks of a file before it is opened, and of another library's complaint."""

import os
from pathlib import Path

from falconcal.errors import UserError


def check_regular(path: Path) -> None:
    """Refuse what is not a regular file: reading a pipe or a device may never end."""
    if path.exists() and not path.is_file():
        kind = "folder" if path.is_dir() else "pipe or a device"
        raise UserError(f"{path}: expected a file, got a {kind}: name a regular file.")


def check_memory(where: str, size: int) -> None:
    """Refuse a size that exceeds the memory of this machine, before any is used."""
    there = memory_of_machine()
    if there is not None and size > there:
        raise UserError(
            f"{where}: declares {size:,} bytes, this machine has {there:,} bytes of memory: is the "
            "file damaged? If not, use a machine with more memory, or make the file smaller."
        )


def memory_of_machine() -> int | None:
    """Return the bytes of memory of this machine; None if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system has these numbers
        return None


def error_line(error: BaseException) -> str:
    """Return the first line of an error of another library."""
    return str(error).strip().partition("\n")[0].rstrip(".")
