"""Files that appear whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from falconcal.errors import UsageError, UserError, described


def as_path(path: object) -> Path:
    """Return a path; what is not one is refused."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise UserError(f"expected the path of a file, got {described(path)}.")
    return Path(path)


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Make a folder for what happens inside; where that fails, what was made and is empty goes."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # another process has written into one meanwhile
            for place in missing:
                place.rmdir()
        raise


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give a temporary file in the same folder that takes the name when all went well, else goes.

    So readers never see a part, whatever time the writing takes.
    """
    # not by tempfile, whose files nobody else may read: here the user's own rule holds
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with making(path.parent):
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())  # a power cut must not leave the name without the data
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def obstacle(folder: Path) -> str | None:
    """Return what keeps a folder from being made or written to, if anything does."""
    whole = folder.absolute()
    there = next(place for place in (whole, *whole.parents) if place.exists())
    if not there.is_dir():
        return f"{there} is a file"
    return None if os.access(there, os.W_OK) else f"{there} may not be written to"


def check_writable(path: Path) -> None:
    """Refuse the name of a file whose folder cannot be made or written to, before any work."""
    reason = f"{path} is a folder" if path.is_dir() else obstacle(path.parent)
    if reason is not None:
        raise UsageError(f"cannot write {path}: {reason}. Choose another file with --out.")


def write_bytes(path: Path, data: bytes) -> None:
    """Write to a temporary name in the same folder, then rename."""
    with appearing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))
