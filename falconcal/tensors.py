"""Tensors on disk: safetensors with facts as JSON in the head of the file. No pickle, ever."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.files import write_bytes

HEAD = "falconcal"


def write_tensors(file: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts in one move: the file is there whole, or as it was before."""
    # a copy each: tensors that share memory are refused
    whole = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, safetensors.torch.save(whole, {HEAD: json.dumps(facts)}))


def read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the facts of a file that ``write_tensors`` wrote."""
    try:
        with safetensors.safe_open(file, "pt") as stored:
            head = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"expected the file {file}, found none.") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(
            f"cannot read {file}: it is damaged, cut off or no safetensors file ({error})."
        ) from None
    if HEAD not in head:
        raise UserError(f"expected a file that falconcal wrote, got {file}, which has no facts.")
    return tensors, _facts(file, head[HEAD])


def _facts(file: Path, text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"cannot read the facts of {file}: {error}.") from None
    if not isinstance(facts, dict):
        raise UserError(f"expected facts by name in {file}, got {type(facts).__name__}.")
    return facts
