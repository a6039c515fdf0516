"""Predictions of a saved model on files of inputs, one batch at a time, some of them rejected.

To add a format, write a file with ``open_FORMAT(path, metadata) -> InputSource`` and a line in
``INPUT_FORMATS``.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars
import torch
from torch import nn

from falconcal.errors import UsageError, UserError
from falconcal.inference.inputs.array_inputs import open_npy, open_npz
from falconcal.inference.inputs.image_inputs import open_images
from falconcal.inference.inputs.input_source import InputBatch, InputSource
from falconcal.inference.inputs.table_inputs import open_csv
from falconcal.inference.model_file import SavedModel
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.io.atomic import atomic_path, check_writable
from falconcal.models.predict import predict_batches

__all__ = [
    "INPUT_FORMATS",
    "PredictionCounts",
    "check_output",
    "choose_threshold",
    "open_inputs",
    "write_predictions",
]

INPUT_FORMATS: dict[str, Callable[[Path, ModelMetadata], InputSource]] = {
    ".csv": open_csv,
    ".npy": open_npy,
    ".npz": open_npz,
}
OUTPUTS = (".csv", ".parquet")
NAMES = {"file": polars.String, "row": polars.Int64}
TYPES = {"label": polars.String, "confidence": polars.Float64, "entropy": polars.Float64}

CLASS_PREFIX = "p_"  # of the columns of class probabilities, as falconcal score reads them

Answer = tuple[str | float, ...]  # label, confidence, entropy, and maybe each class's probability


@dataclass
class PredictionCounts:
    """How many examples were predicted and rejected, and which could not be read."""

    examples: int = 0
    rejected: int = 0
    damaged: dict[str, str] = field(default_factory=dict)  # name to reason


def open_inputs(path: Path, metadata: ModelMetadata) -> InputSource:
    """Return what is to be predicted: a folder of images, or a file, by its extension."""
    if path.is_dir():
        return open_images(path, metadata)
    if not path.exists():
        raise UsageError(f"no such file or folder: {path}. Check the path.")
    if path.suffix.lower() not in INPUT_FORMATS:
        raise UsageError(
            f"expected a folder of images or a file that ends in {', '.join(INPUT_FORMATS)}, got "
            f"{path.name!r}: convert it."
        )
    return INPUT_FORMATS[path.suffix.lower()](path, metadata)


def choose_threshold(
    metadata: ModelMetadata, reject_below: float | None, risk: float | None
) -> float | None:
    """Return the confidence below which predictions are rejected, as given or from a risk."""
    if reject_below is not None and risk is not None:
        raise UsageError("expected --reject-below or --risk, got both: choose one.")
    if reject_below is not None and not 0 <= reject_below <= 1:
        raise UsageError(f"expected --reject-below from 0 to 1, got {reject_below:g}.")
    if risk is None:
        return reject_below
    if metadata.risks is None:
        raise UserError(
            "the model was saved without validation data, so no threshold for a risk is known: "
            "save it with validation=falconcal.predict(model, validation), or use --reject-below."
        )
    return metadata.risks.threshold(risk)


def chose_its_epoch(metadata: ModelMetadata) -> bool:
    """Return whether validation data chose the epoch, so that its risks are too low."""
    method = metadata.method
    while isinstance(method, dict):
        if method.get("keep") == "best" or method.get("patience") is not None:
            return True
        method = method.get("base")
    return False


def check_output(out: Path, source: Path) -> None:
    """Refuse an output file that cannot be written, before anything is predicted."""
    if out.suffix.lower() not in OUTPUTS:
        raise UsageError(f"expected --out to end in {' or '.join(OUTPUTS)}, got {out.name!r}.")
    if out.is_dir():
        raise UsageError(f"expected --out to be a file, got the folder {out}.")
    if out.exists() and source.exists() and out.samefile(source):
        raise UsageError(f"expected --out to be another file than the input, got {out}.")
    check_writable(out)


def write_predictions(
    out: Path,
    saved: SavedModel,
    source: InputSource,
    threshold: float | None = None,
    advance: Callable[[int], None] = lambda _: None,
    *,
    probabilities: bool = False,
) -> PredictionCounts:
    """Write one prediction per example to a file, which appears when it is complete."""
    outcome = PredictionCounts()
    names = class_columns(saved.metadata) if probabilities else ()
    tables = _watched(_tables(saved, source, threshold, names), outcome, advance)
    with atomic_path(out) as temporary:
        if out.suffix.lower() == ".csv":
            _write_csv(temporary, tables)
        else:
            _write_parquet(temporary, tables, source.named, names)
    return outcome


def class_columns(metadata: ModelMetadata) -> tuple[str, ...]:
    """Return the names of the columns of class probabilities."""
    return tuple(f"{CLASS_PREFIX}{_writable(name)}" for name in metadata.classes)


def _tables(
    saved: SavedModel, source: InputSource, threshold: float | None, columns: Sequence[str]
) -> Iterator[tuple[InputBatch, polars.DataFrame]]:
    """Yield one row per example, one batch at a time."""
    model = saved.model.to("cuda") if torch.cuda.is_available() else saved.model
    for batch in source.batches:
        answers = _answers(model, saved.metadata, batch, probabilities=bool(columns))
        table = _table(source.named, batch, answers, columns)
        if threshold is not None:
            # an example that could not be read has no confidence, so it is rejected
            rejected = (polars.col("confidence") < threshold).fill_null(True)
            table = table.with_columns(rejected=rejected)
        yield batch, table


def _answers(
    model: nn.Module, metadata: ModelMetadata, batch: InputBatch, *, probabilities: bool
) -> list[Answer]:
    """Return label, confidence, entropy and the like of each example that could be read."""
    if len(batch.inputs) == 0:
        return []
    unknown = torch.full((len(batch.inputs),), -1)
    (predictions,) = predict_batches(model, [(batch.inputs, unknown)])
    if predictions.classes != len(metadata.classes):
        raise UserError(
            f"expected {len(metadata.classes)} outputs, one per class that the model was saved "
            f"with, got {predictions.classes}: save it with the names of all its classes."
        )
    scores = predictions.scores()
    labels = [metadata.classes[number] for number in scores.prediction.tolist()]
    more = predictions.probs.double().T.tolist() if probabilities else []
    columns = [labels, scores.confidence.tolist(), scores.entropy.tolist(), *more]
    return list(zip(*columns, strict=True))


def _table(
    named: str, batch: InputBatch, answers: list[Answer], columns: Sequence[str]
) -> polars.DataFrame:
    """Return the predictions with the names; an example that could not be read has nulls."""
    given, types = iter(answers), {**TYPES, **dict.fromkeys(columns, polars.Float64)}
    nothing = (None,) * len(types)
    rows = [nothing if name in batch.damaged else next(given) for name in batch.names]
    names = [_writable(name) for name in batch.names]
    table = polars.DataFrame(rows, schema=types, orient="row")
    return table.insert_column(0, polars.Series(named, names, dtype=NAMES[named]))


def _writable(name: str | int) -> str | int:
    """Return a file's name as text that UTF-8 can hold; a file system may hold others."""
    return name if isinstance(name, int) else os.fsencode(name).decode("utf-8", "replace")


def _watched(
    tables: Iterator[tuple[InputBatch, polars.DataFrame]],
    outcome: PredictionCounts,
    advance: Callable[[int], None],
) -> Iterator[polars.DataFrame]:
    """Yield the tables and count their examples."""
    for batch, table in tables:
        outcome.examples += len(table)
        outcome.rejected += int(table["rejected"].sum()) if "rejected" in table.columns else 0
        outcome.damaged.update(batch.damaged)
        advance(len(table))
        yield table
    if outcome.examples == 0:
        raise UserError("expected at least one example, got none.")


def _write_csv(path: Path, tables: Iterator[polars.DataFrame]) -> None:
    with path.open("wb") as file:
        for number, table in enumerate(tables):
            table.write_csv(file, include_header=number == 0)


def _write_parquet(
    path: Path, tables: Iterator[polars.DataFrame], named: str, classes: Sequence[str]
) -> None:
    """Write CSV first, so that only a part of the rows is in memory."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        rows = Path(folder) / "rows.csv"
        _write_csv(rows, tables)
        types = {named: NAMES[named], **TYPES, "rejected": polars.Boolean}
        types |= dict.fromkeys(classes, polars.Float64)
        columns = polars.scan_csv(rows, infer_schema=False, glob=False).collect_schema().names()
        schema = {name: types[name] for name in columns}
        polars.scan_csv(rows, schema=schema, glob=False).sink_parquet(path, compression="zstd")
