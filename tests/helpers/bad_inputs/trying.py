"""Trying a bad input as a user would: what comes out, and what it leaves behind."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from falconcal.cli.app import FAILED, WRONG_USAGE
from falconcal.errors import UsageError, UserError
from tests.helpers.command import run_here

Snapshot = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Case:
    """A bad input, and what it must come to: an exit code and words of the message."""

    surface: str  # under which the docs count it
    title: str
    code: int
    words: str
    arguments: tuple[str, ...] = ()  # of the command
    call: Callable[[], object] | None = None  # or of Python

    def __str__(self) -> str:
        return f"{self.surface}: {self.title}"


@dataclass(frozen=True)
class Answer:
    code: int
    message: str


def ask(case: Case, home: Path) -> Answer:
    """Try a case in a folder; an exception that no user should see is raised."""
    with _in(home):
        return _call(case.call) if case.call is not None else _command(case.arguments)


def _call(call: Callable[[], object]) -> Answer:
    try:
        call()
    except UserError as error:
        return Answer(WRONG_USAGE if isinstance(error, UsageError) else FAILED, str(error))
    return Answer(0, "")


def _command(arguments: tuple[str, ...]) -> Answer:
    answer = run_here(*arguments, COLUMNS="400")
    return Answer(answer.returncode, " ".join(re.sub("[─│╭╮╰╯]", " ", answer.stderr).split()))


@contextmanager
def _in(home: Path) -> Iterator[None]:
    """Be in a folder and offline, and put all back afterwards."""
    environment = {"FALCONCAL_OFFLINE": "1", "FALCONCAL_DATA": str(home)}
    with mock.patch.dict(os.environ, environment), chdir(home):
        yield


def snapshot(home: Path) -> Snapshot:
    """Return every file and folder with its size and the time of its last change."""
    found, folders = {}, [str(home)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                found[entry.path] = (state.st_size, state.st_mtime_ns)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return found
