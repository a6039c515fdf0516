"""Files that are written completely or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from falconcal.errors import UsageError, UserError, described


def as_path(path: object) -> Path:
    """Return a value as a path; refuse what is not one."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise UserError(f"expected the path of a file, got {described(path)}.")
    return Path(path)


@contextmanager
def creating(folder: Path) -> Iterator[None]:
    """Make a folder; on an error inside, remove it and its new parents where they are empty."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # another process has written into one meanwhile
            for parent in missing:
                parent.rmdir()
        raise


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Write to a temporary file; rename it to ``path`` on success, delete it on error."""
    # not with tempfile, whose files only their owner can read: here the umask applies
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with creating(path.parent):
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())  # or a power cut could leave an empty file
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def obstacle(folder: Path) -> str | None:
    """Return why a folder cannot be made or written to; None if it can."""
    whole = folder.absolute()
    there = next(parent for parent in (whole, *whole.parents) if parent.exists())
    if not there.is_dir():
        return f"{there} is a file"
    return None if os.access(there, os.W_OK) else f"{there} is not writable"


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written because of its folder, before any work."""
    reason = f"{path} is a folder" if path.is_dir() else obstacle(path.parent)
    if reason is not None:
        raise UsageError(f"cannot write {path}: {reason}. Choose another file with --out.")


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Say what to do where a file cannot be written after all: a full disk, a strange folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {path}: {reason}. Choose another file with --out.") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes, completely or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, completely or not at all."""
    write_bytes(path, text.encode("utf-8"))
