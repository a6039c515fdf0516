"""The files of a run: JSON, Parquet tables and weights; an error names the file and what to do."""

import io
import json
from pathlib import Path
from typing import Any

import polars
import safetensors.torch
import torch
from torch import nn

from falconcal.errors import UserError
from falconcal.io.atomic import write_bytes
from falconcal.io.output_folder import advice
from falconcal.io.parsing import parse_json


def is_whole(file: Path) -> bool:
    """Return whether a file exists and its beginning and end are intact."""
    try:
        if file.suffix == ".json":
            return isinstance(parse_json(file.read_text(encoding="utf-8")), dict)
        if file.suffix == ".parquet":
            polars.read_parquet_schema(file)
        else:
            with safetensors.safe_open(file, "pt") as weights:
                weights.keys()
    except (FileNotFoundError, ValueError, polars.exceptions.PolarsError,
            safetensors.SafetensorError):  # fmt: skip
        return False
    return True


def to_json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {path}, it looks damaged ({error}): {advice(path)}."
        ) from None


def read_table(path: Path, columns: list[str] | None = None) -> polars.DataFrame:
    """Read a table, or some of its columns, from a Parquet file."""
    try:
        return polars.read_parquet(path, glob=False, columns=columns)
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"cannot read {path}, it looks damaged ({reason}): {advice(path)}."
        ) from None


def write_table(path: Path, table: polars.DataFrame) -> None:
    """Write a table as a Parquet file, completely or not at all."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    write_bytes(path, buffer.getvalue())


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a module's weights as safetensors."""
    state: dict[str, torch.Tensor] = model.state_dict()
    weights = {name: weight.detach().cpu().contiguous() for name, weight in state.items()}
    write_bytes(path, safetensors.torch.save(weights))


def load_weights(path: Path, model: nn.Module) -> nn.Module:
    """Read weights from safetensors into a module of the same shape; return it in eval mode."""
    try:
        model.load_state_dict(safetensors.torch.load(path.read_bytes()))
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise UserError(f"cannot read the weights {path} ({error}): {advice(path)}.") from None
    return model.eval()
