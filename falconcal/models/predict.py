"""Run a model on data, batch by batch, and return its predictions."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from falconcal.core import distributed
from falconcal.core.batch import check_batches, checked_batches, shape_of
from falconcal.core.layout import to_model_device
from falconcal.core.model_inputs import Inputs, call_model
from falconcal.core.module_state import (
    check_module,
    explain_model_errors,
    flush_denormals,
    inference_mode_of,
)
from falconcal.data import PREDICTION_BATCH_SIZE, Batches, Part
from falconcal.data.given_data import AnyData, as_part_or_batches
from falconcal.data.input_checks import check_inputs
from falconcal.data.sharding import Shard, shard_of
from falconcal.errors import CalibrationWarning, UserError
from falconcal.metrics.predictions import Predictions


def predict(model: nn.Module, data: AnyData, *, single_process: bool = False) -> Predictions:
    """Return a model's predictions on data.

    The model runs in inference mode where its weights are, and is left in the mode it had. Under
    torchrun all processes call it: each predicts its share of the data, and each gets all
    predictions.

    Args:
        model: A module, inputs in and logits (N, C) out.
        data: A loader, ``(inputs, labels)`` of all examples, a mapping with the key ``labels``,
            ``Examples``, a part of a dataset, or a dataset, of which the test part is taken.
        single_process: Whether only this one of several processes calls it.

    Returns:
        The predictions on the CPU, in the order of the data.

    Raises:
        UserError: The data is not batches or is empty, the model fails on it, or its output is
            not one row of logits per example.

    Example:
        >>> import falconcal, torch
        >>> inputs = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
        >>> predictions = falconcal.predict(torch.nn.Identity(), [(inputs, torch.tensor([0, 1]))])
        >>> falconcal.accuracy(predictions)
        1.0
    """
    check_module(model)
    data = as_part_or_batches(data)
    if not isinstance(data, Part):
        check_batches(data)
    shared = None if single_process or distributed.world_size() == 1 else shard_of(data)
    parts = list(predict_batches(model, data if shared is None else shared))
    if shared is not None:
        return _together(parts, shared)
    if not parts:
        raise UserError("expected at least one batch, got none: is the loader empty?")
    log_probs = torch.cat([part.log_probs for part in parts])
    return Predictions(log_probs, torch.cat([part.labels for part in parts]))


def _together(parts: list[Predictions], shared: Shard) -> Predictions:
    """Return the predictions of all processes in the order of the data."""
    own = [torch.cat([part.labels[:, None].double(), part.log_probs], 1) for part in parts]
    rows = shared.gathered(torch.cat(own) if own else None)  # (N, 1 + C)
    if len(rows) == 0:
        raise UserError("expected at least one batch, got none: is the loader empty?")
    return Predictions(rows[:, 1:], rows[:, 0].long())


def predict_batches(model: nn.Module, data: Batches | Part) -> Iterator[Predictions]:
    """Yield the predictions batch by batch, so that only one batch is in memory."""
    batches = data.batches(PREDICTION_BATCH_SIZE) if isinstance(data, Part) else data
    classes = getattr(batches, "classes", None)
    for inputs, labels in checked_batches(batches):
        check_inputs(inputs)
        yield predict_batch(model, partial(call_model, model), inputs, labels, classes)


def predict_batch(
    model: nn.Module,
    forward: Callable[[Inputs], Tensor],
    inputs: Inputs,
    labels: Tensor,
    classes: Sequence[str] | None,
) -> Predictions:
    """Return the predictions of one batch; ``forward`` gives the logits of the model."""
    with (
        inference_mode_of(model),
        torch.no_grad(),
        flush_denormals(),
        explain_model_errors(inputs),
    ):
        logits = forward(to_model_device(model, inputs))
    check_logits(logits, len(inputs), len(classes) if classes else None)
    warn_of_probabilities(logits)
    return Predictions.from_logits(logits.cpu(), labels.cpu())


def check_logits(logits: Tensor, examples: int, classes: int | None) -> None:
    """Refuse a model output that is not one row of logits per example."""
    width = "C" if classes is None else str(classes)
    right = logits.ndim == 2 and len(logits) == examples and logits.shape[1] >= 2
    if not right or (classes is not None and logits.shape[1] != classes):
        raise UserError(
            f"expected logits of shape ({examples}, {width}) from the model, got "
            f"{shape_of(logits)}: does its last layer have one output per class?"
        )


def warn_of_probabilities(logits: Tensor) -> None:
    """Warn of outputs that a softmax has left: another one would make all of them timid."""
    several = len(logits) > 1 and bool((logits >= 0).all())
    if several and bool(((logits.double().sum(1) - 1).abs() < 1e-3).all()):
        warnings.warn(
            "the model's outputs are probabilities, each row of sum 1, where logits are expected: "
            "leave out its last softmax, or return the logarithm of what it gives.",
            CalibrationWarning,
            stacklevel=2,
        )
