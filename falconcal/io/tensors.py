"""Tensors on disk: safetensors with metadata as JSON in the head of the file. No pickle, ever."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.io.atomic import write_bytes
from falconcal.io.parsing import parse_json

HEAD = "falconcal"
SHOWN = 5  # names of weights in an error


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata in one move: the file is there whole, or as it was before."""
    # a copy each: tensors that share memory are refused
    whole = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, safetensors.torch.save(whole, {HEAD: json.dumps(metadata)}))


def read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the metadata of a file that ``write_tensors`` wrote."""
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
        raise UserError(f"{file} was not written by falconcal: it has no metadata.")
    return tensors, _metadata(file, head[HEAD])


def check_state_matches(
    wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: str, advice: str
) -> None:
    """Refuse weights that a module has no place for, or that it misses, by name."""
    misfits = {
        "missing": sorted(wanted.keys() - weights.keys()),
        "too many": sorted(weights.keys() - wanted.keys()),
        "of another shape": sorted(_other_shapes(wanted, weights)),
    }
    said = [f"{kind}: {_listed(names)}" for kind, names in misfits.items() if names]
    if said:
        raise UserError(f"{source}: {'; '.join(said)}. {advice}")


def _other_shapes(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Iterator[str]:
    for name in wanted.keys() & weights.keys():
        expected, came = tuple(wanted[name].shape), tuple(weights[name].shape)
        # a part that was not fitted yet has buffers without elements, sized when they are loaded
        if expected != came and wanted[name].numel():
            yield f"{name} {came} for {expected}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _metadata(file: Path, text: str) -> dict[str, Any]:
    try:
        metadata = parse_json(text)
    except ValueError as error:
        raise UserError(f"cannot read the metadata of {file}: {error}.") from None
    if not isinstance(metadata, dict):
        raise UserError(f"expected metadata by name in {file}, got {type(metadata).__name__}.")
    return metadata
