"""Checks of inputs, tokens and labels."""

from numbers import Integral

import torch
from torch import Tensor

from falconcal.core.batch import check_integer_labels, shape_of
from falconcal.core.model_inputs import Inputs, each_tensor
from falconcal.errors import UserError


def check_size(size: int) -> None:
    if not isinstance(size, Integral) or size < 1:
        raise UserError(f"expected a batch size of 1 or more, a whole number, got {size!r}.")


def check_inputs(inputs: Inputs) -> None:
    """Refuse inputs that are empty or hold NaN or infinity, naming the first bad example."""
    for tensor in each_tensor(inputs):
        _check_finite(tensor)


def _check_finite(inputs: Tensor) -> None:
    if inputs.ndim < 1 or len(inputs) == 0:
        raise UserError(f"expected at least one example, got inputs of shape {shape_of(inputs)}.")
    if not inputs.is_floating_point():
        return
    bad = ~torch.isfinite(inputs).flatten(1).all(1) if inputs.ndim > 1 else ~inputs.isfinite()
    if bad.any():
        first = int(bad.nonzero()[0])
        raise UserError(
            f"expected finite inputs, got NaN or infinity in {int(bad.sum())} of {len(inputs)} "
            f"examples, the first at index {first}: remove or repair them."
        )


def check_tokens(inputs: Tensor, tokens: int | None) -> None:
    """Refuse inputs that are not tokens, whole numbers from 0 to ``tokens`` - 1."""
    if tokens is None:
        return
    if inputs.is_floating_point():
        raise UserError(f"expected tokens, whole numbers, got {inputs.dtype}: leave tokens empty.")
    low, high = (int(end) for end in inputs.aminmax())
    if low < 0 or high >= tokens:
        raise UserError(
            f"expected tokens from 0 to {tokens - 1}, got {low} to {high}: state how many "
            "different tokens there are, padding included."
        )


def _advice(labels: Tensor) -> str:
    """Return what to do about labels of two axes."""
    if labels.ndim != 2:
        return ""
    if labels.shape[1] == 1:
        return ": use labels[:, 0]"
    return ": distributions over the classes come as floating-point numbers, labels.float()"


def check_labels(labels: Tensor, examples: int, classes: int | None) -> None:
    """Refuse labels that are not one whole number per example, from -1 to ``classes`` - 1."""
    if labels.shape != (examples,):
        raise UserError(
            f"expected one label per example, shape ({examples},), got shape {shape_of(labels)}"
            f"{_advice(labels)}."
        )
    check_integer_labels(labels)
    labels = labels.long()  # unsigned ones would wrap below 0
    highest = classes - 1 if classes is not None else int(labels.max())
    if len(labels) and (labels.min() < -1 or labels.max() > highest):
        index = int(((labels < -1) | (labels > highest)).nonzero()[0])
        raise UserError(
            f"expected labels from 0 to {highest} (or -1 for no known class), got "
            f"{int(labels[index])} at index {index}: check the labels and the number of outputs."
        )
