"""Files that appear whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from falconcal.errors import UsageError, UserError, described


def as_path(path: object) -> Path:
    """Return a path; what is not one is refused."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise UserError(f"expected the path of a file, got {described(path)}.")
    return Path(path)


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give a temporary file in the same folder that takes the name when all went well, else goes.

    So readers never see a part, whatever time the writing takes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # not by tempfile, whose files nobody else may read: here the user's own rule holds
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # a power cut must not leave the name without the data
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_writable(path: Path) -> None:
    """Refuse the name of a file whose folder cannot be made or written to, before any work."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise UsageError(f"expected --out in a folder, got {path}: {folder} is a file.")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write {path} into {folder}: choose another place with --out.")


def write_bytes(path: Path, data: bytes) -> None:
    """Write to a temporary name in the same folder, then rename."""
    with appearing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))
