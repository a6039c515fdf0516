"""The command `falconcal`, in a process of its own or, much sooner, in this one."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

from falconcal.cli import main

COMMAND = [sys.executable, "-c", "from falconcal.cli import main; main()"]
HANGING = 600  # seconds, on however busy a machine
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Return what the command says in a process of its own, as a user meets it."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **ENVIRONMENT},
        timeout=HANGING,
    )  # fmt: skip


def run_here(
    *arguments: str, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Return the same from this process, where everything is imported already."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {**ENVIRONMENT, **environment}),
        mock.patch.object(sys, "argv", ["falconcal", *arguments]),
        mock.patch.object(sys, "path", list(sys.path)),
        contextlib.chdir(folder or Path.cwd()),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # for a user they are no errors, as they are in tests
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code
    status = code if isinstance(code, int) else 0 if code is None else 1
    return subprocess.CompletedProcess(arguments, status, output.getvalue(), errors.getvalue())
