"""Several files of predictions of the same examples: their classes matched by name."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from falconcal.errors import UserError
from falconcal.inference.prediction_files.prediction_file import PredictionFile
from falconcal.metrics.metric_inputs import labelled
from falconcal.metrics.predictions import PredictionRecord, Predictions, Scores


def same_examples(files: Sequence[PredictionFile]) -> list[PredictionRecord]:
    r"""Return the predictions of several files, their classes in the order of the first file.

    Args:
        files: What ``read_predictions`` returned, of the same examples in the same order.

    Returns:
        One record per file, with the same labels.

    Raises:
        UserError: If the files have other numbers of examples, or other labels.

    Example:
        >>> import pathlib, falconcal
        >>> from falconcal.inference import same_examples
        >>> _ = pathlib.Path("a.csv").write_text("label,p_cat,p_dog\ncat,0.9,0.1\n")
        >>> _ = pathlib.Path("b.csv").write_text("label,p_dog,p_cat\ncat,0.3,0.7\n")
        >>> files = [falconcal.read_predictions(name) for name in ("a.csv", "b.csv")]
        >>> [record.probs.tolist() for record in same_examples(files)]
        [[[0.9, 0.1]], [[0.7, 0.3]]]
    """
    names = list(dict.fromkeys(name for file in files for name in file.classes))
    records = [_renumbered(file, names) for file in files]
    for file, record in zip(files[1:], records[1:], strict=True):
        _check_same(files[0], records[0], file, record)
    return records


def _renumbered(file: PredictionFile, names: list[str]) -> PredictionRecord:
    """Return predictions whose classes are numbered as in a list of names."""
    places = [names.index(name) for name in file.classes]
    if places == list(range(len(names))):
        return file.record
    number = torch.tensor(places)
    if not isinstance(file.record, Predictions):
        scores = labelled(file.record, "a comparison")
        return replace(scores, label=number[scores.label], prediction=number[scores.prediction])
    probs = torch.zeros(len(file.record), len(names), dtype=file.record.probs.dtype)
    probs[:, number] = file.record.probs
    return Predictions.from_probabilities(probs, number[file.record.labels])


def _check_same(
    first: PredictionFile, one: PredictionRecord, second: PredictionFile, other: PredictionRecord
) -> None:
    ours, theirs = (_labels(record) for record in (one, other))
    if len(ours) != len(theirs):
        raise UserError(
            f"expected predictions of the same examples, got {len(ours):,} in {first.path} and "
            f"{len(theirs):,} in {second.path}."
        )
    if (ours != theirs).any():
        row = int((ours != theirs).nonzero()[0])
        raise UserError(
            f"expected the same examples in the same order, got other labels in row {row} (from 0) "
            f"of {first.path} and {second.path}."
        )


def _labels(record: PredictionRecord) -> torch.Tensor:
    return record.label if isinstance(record, Scores) else record.labels
