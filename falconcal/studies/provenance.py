"""Provenance of a result: versions, commit, machine, threads, time."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import falconcal

PACKAGES = ("torch", "lightning-fabric", "numpy", "scikit-learn", "polars")


def provenance() -> dict[str, Any]:
    """Return what may explain why two results differ."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "falconcal": falconcal.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the source tree that runs; None if it is not a git repository."""
    root = Path(falconcal.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
