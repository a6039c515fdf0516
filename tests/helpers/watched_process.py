"""A watch over what this process does to the world: files, processes, connections, pickles.

Python's audit events see also what C code does through it. A hook cannot be taken out again, so
there is one, which listens while a watch is kept.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEEDS = (
    "os.system", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.spawn", "pty.spawn",
    "subprocess.Popen", "socket.connect", "socket.bind", "socket.getaddrinfo", "pickle.find_class",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "os.kill", "shutil.rmtree", "shutil.move", "shutil.copyfile",
)  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
COUNTS: dict[str, str] = {}  # what the fuzzers did, for the end of the output
_watches: list["Watch"] = []


class Watch:
    """What was done while it was kept, outside the folder that may be written to."""

    def __init__(self, free: Path | None) -> None:
        self.free = None if free is None else str(free.resolve())
        self.deeds: list[str] = []

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITING or self._allowed(path):
                return
        elif event not in DEEDS or (event.startswith(("os.", "shutil.")) and self._allowed(
            arguments[0] if arguments else None
        )):  # fmt: skip
            return
        self.deeds.append(f"{event} {arguments!r}")

    def _allowed(self, path: object) -> bool:
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if text == os.devnull or "__pycache__" in text:
            return True
        return self.free is not None and str(Path(text).resolve()).startswith(self.free)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _watches:
        watch.note(event, arguments)


sys.addaudithook(_hook)


@contextmanager
def harmless(free: Path | None = None) -> Iterator[None]:
    """Fail if what happens inside writes a file, starts a process, connects or unpickles."""
    watch = Watch(free)
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)
    assert not watch.deeds, watch.deeds
