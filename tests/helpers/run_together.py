"""Programs in several processes that torchrun starts."""

import os
import subprocess
import sys

from tests.helpers.command import ENVIRONMENT, HANGING
from tests.helpers.paths import ROOT


def run_together(count: int, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a module or script in processes that torchrun starts."""
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}",
               "--standalone", *words]  # fmt: skip
    for _ in range(3):
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=HANGING,
            cwd=ROOT,
        )  # fmt: skip
        if "address already in use" not in done.stderr.lower():
            break  # else another test took the free port that torchrun had found
    assert done.returncode == 0 or not check, done.stderr
    return done
