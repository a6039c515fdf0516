"""Model files with other tensors or metadata."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch

from falconcal.io.tensors import HEAD, write_tensors


def rewritten(file: Path, **changes: Any) -> None:
    """Write a model file again with other words in its head."""
    with safetensors.safe_open(file, "pt") as stored:
        head = json.loads(stored.metadata()[HEAD])
    write_tensors(file, safetensors.torch.load_file(file), {**head, **changes})
