"""Load published weights into a network: safetensors, or PyTorch's own files, never pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from falconcal.data.locations import data_folder
from falconcal.errors import UserError
from falconcal.io.tensors import check_state_matches

COUNTED = "num_batches_tracked"  # of batch norm, which older files lack


def load_published(model: nn.Module, file: str | Path) -> None:
    """Load the weights of a file into a network with the same names and shapes.

    A relative path is also looked for in the folder that ``FALCONCAL_DATA`` names.
    """
    file, kept = Path(file).expanduser(), data_folder()
    if kept is not None and not file.is_file() and (kept / file).is_file():
        file = kept / file
    weights, own = _read(file), model.state_dict()
    counts = {name: value for name, value in own.items() if name.endswith(COUNTED)}
    weights = {**counts, **weights}
    advice = "Was the file made for this network, with as many classes?"
    check_state_matches(own, weights, f"the weights of {file} do not fit", advice)
    model.load_state_dict(weights)


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise UserError(f"there is no file of weights at {file}: download it first.")
    try:
        if file.suffix == ".safetensors":
            return safetensors.torch.load_file(file)
        stored = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"cannot read the weights {file}: {reason}. Expected safetensors, or a .pth file of "
            "tensors only; files that need pickle are not read."
        ) from None
    return _tensors(file, stored)


def _tensors(file: Path, stored: Any) -> dict[str, Tensor]:
    """Return the tensors by name, in training scripts' files those under ``state_dict``."""
    if isinstance(stored, Mapping) and isinstance(stored.get("state_dict"), Mapping):
        stored = stored["state_dict"]
    if not isinstance(stored, Mapping) or not all(isinstance(v, Tensor) for v in stored.values()):
        raise UserError(f"expected tensors by name in {file}, got {type(stored).__name__}.")
    return {str(name): tensor for name, tensor in stored.items()}
