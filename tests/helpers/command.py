"""The command `falconcal` in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-c", "from falconcal.cli import main; main()"]


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=120,
    )  # fmt: skip
