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
MAX_NAMED_WEIGHTS = 5  # in an error


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata to a file, completely or not at all."""
    # copies, because safetensors refuses tensors that share memory
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
            f"cannot read {file}: it is damaged, cut off or not a safetensors file ({error})."
        ) from None
    if HEAD not in head:
        raise UserError(f"{file} was not written by falconcal: it has no metadata.")
    return tensors, _metadata(file, head[HEAD])


def check_state_matches(
    wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: str, advice: str
) -> None:
    """Refuse weights whose names or shapes differ from those of a module."""
    misfits = {
        "missing": sorted(wanted.keys() - weights.keys()),
        "too many": sorted(weights.keys() - wanted.keys()),
        "of another shape": sorted(_other_shapes(wanted, weights)),
    }
    differences = [f"{kind}: {_listed(names)}" for kind, names in misfits.items() if names]
    if differences:
        raise UserError(f"{source}: {'; '.join(differences)}. {advice}")


def _other_shapes(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Iterator[str]:
    for name in wanted.keys() & weights.keys():
        expected, came = tuple(wanted[name].shape), tuple(weights[name].shape)
        # a part that is not fitted yet has empty buffers, which are sized when loaded
        if expected != came and wanted[name].numel():
            yield f"{name} {came} for {expected}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED_WEIGHTS} more" if len(names) > MAX_NAMED_WEIGHTS else ""
    return ", ".join(names[:MAX_NAMED_WEIGHTS]) + more


def _metadata(file: Path, text: str) -> dict[str, Any]:
    try:
        metadata = parse_json(text)
    except ValueError as error:
        raise UserError(f"cannot read the metadata of {file}: {error}.") from None
    if not isinstance(metadata, dict):
        raise UserError(f"expected metadata by name in {file}, got {type(metadata).__name__}.")
    return metadata
