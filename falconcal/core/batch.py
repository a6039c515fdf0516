"""Batches: what training, prediction and calibration iterate over, read from any form.

A batch is ``(inputs, labels)``, ``(a, b, ..., labels)``, ``((a, b), labels)``, or a mapping with
the labels under a key. ``BatchForm`` says what cannot be seen in the batch itself, and travels with
the batches as their attribute ``form``; ``read_batch`` reads all forms.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Any, Protocol

import numpy
import torch
from torch import Tensor

from falconcal.core.array_conversion import as_tensor
from falconcal.core.data_frames import is_table
from falconcal.core.model_inputs import Inputs, ModelInputs, map_inputs
from falconcal.errors import UserError, described


class Batch(tuple[Inputs, Tensor]):
    """Inputs and labels of some examples; it unpacks as the pair of them.

    Args:
        inputs: One tensor (N, ...), or several.
        labels: Classes (N,), -1 for no known class.
        weights: How much each example counts in training, (N,); None counts all alike.
        targets: The label as a distribution, (N, C), where it is one; labels are then its modes.
    """

    weights: Tensor | None
    targets: Tensor | None

    def __new__(
        cls,
        inputs: Inputs,
        labels: Tensor,
        weights: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> "Batch":
        """Make the pair, with what goes beside it."""
        batch = super().__new__(cls, (inputs, labels))
        batch.weights, batch.targets = weights, targets
        return batch

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        inputs, labels = self
        beside = [None if one is None else one.to(device) for one in (self.weights, self.targets)]
        there = map_inputs(lambda tensor: tensor.to(device), inputs)
        return Batch(there, labels.to(device), *beside)

    def split(self, parts: int) -> list["Batch"]:
        """Return the examples in so many parts."""
        inputs, labels = self
        beside = [
            [None] * parts if one is None else one.tensor_split(parts)
            for one in (self.weights, self.targets)
        ]
        columns = (inputs.tensor_split(parts), labels.tensor_split(parts), *beside)
        return [Batch(*part) for part in zip(*columns, strict=True)]


@dataclass(frozen=True)
class BatchForm:
    """What cannot be seen in a batch: under which keys things stand, and what is perturbed.

    Args:
        labels: The key of the labels in a mapping.
        perturb: The name or position of the input that is perturbed; None finds it.
        weights: The key of the examples' weights in a mapping, or ``"last"`` where they are the
            last item of a tuple; None where there are none.
    """

    labels: str = "labels"
    perturb: str | int | None = None
    weights: str | None = None


USUAL_FORM = BatchForm()


class Batches(Protocol):
    """Anything that can be iterated more than once and gives batches of inputs and labels.

    A ``DataLoader``, a list of pairs, or what ``Examples.batches`` returns. Inputs are (N, ...),
    labels (N,) whole numbers, -1 for an example of no known class. Batches may also hold several
    inputs, or be mappings with the key ``labels``; ``Loader`` says what else there is to say.

    Example:
        >>> import torch
        >>> from falconcal.data import Batches
        >>> batches: Batches = [(torch.zeros(2, 3), torch.tensor([0, 1]))]
        >>> [tuple(inputs.shape) for inputs, labels in batches]
        [(2, 3)]
    """

    def __iter__(self) -> Iterator[Any]: ...


class EpochBatches(Batches, Protocol):
    """Batches whose order and augmentation are those of an epoch."""

    def set_epoch(self, epoch: int) -> None: ...
    def __len__(self) -> int: ...


def checked_batches(batches: Batches) -> Iterator[Batch]:
    """Yield the batches, each read from its form and checked."""
    check_batches(batches)
    form = getattr(batches, "form", USUAL_FORM)
    for batch in batches:
        yield read_batch(batch, form)


def read_batch(batch: Any, form: BatchForm = USUAL_FORM) -> Batch:
    """Return a batch of any form as inputs and labels.

    Args:
        batch: ``(inputs, labels)``, ``(a, b, ..., labels)``, ``((a, b), labels)``, or a mapping
            with the labels under a key.
        form: What cannot be seen in the batch.

    Returns:
        The inputs, one tensor or several, and the labels.

    Raises:
        UserError: The batch has another form, or labels are missing or no classes.

    Example:
        >>> import torch
        >>> from falconcal.core.batch import read_batch
        >>> image, table = torch.zeros(2, 1, 4, 4), torch.zeros(2, 3)
        >>> inputs, labels = read_batch((image, table, torch.tensor([0, 1])))
        >>> len(inputs.positional), labels
        (2, tensor([0, 1]))
    """
    if isinstance(batch, Batch):
        return batch
    given, labels, weights = _parts(batch, form)
    _check_several(labels)
    inputs = _inputs(given, form, batch)
    classes, targets = _classes(labels)
    return Batch(inputs, classes, check_weights(weights, len(classes)), targets)


def _parts(batch: Any, form: BatchForm) -> tuple[Any, Any, Any]:
    """Return what the model is given, the labels, and the weights, as they came."""
    if isinstance(batch, Mapping):
        others = dict(batch)
        if form.labels not in others:
            raise UserError(
                f"expected labels under the key {form.labels!r}, got the keys "
                f"{', '.join(map(str, others))}: name theirs once, as in "
                'falconcal.Loader(batches, labels="...").'
            )
        labels = others.pop(form.labels)
        weights = _named_weights(others, form.weights)
        return {name: one for name, one in others.items() if one is not None}, labels, weights
    fewest = 2 if form.weights is None else 3
    if not isinstance(batch, tuple | list) or len(batch) < fewest:
        raise _form_error(batch)
    *given, labels = batch
    weights = None
    if form.weights is not None:
        *given, labels = given
        weights = batch[-1]
    return given[0] if len(given) == 1 else tuple(given), labels, weights


def _named_weights(batch: dict[str, Any], key: str | None) -> Any:
    """Take the weights out of a mapping and return them; None where no key is named."""
    if key is None:
        return None
    if key not in batch:
        raise UserError(
            f"expected weights under the key {key!r}, got the keys {', '.join(map(str, batch))}."
        )
    return batch.pop(key)


def _check_several(labels: Any) -> None:
    """Refuse a single example, as a dataset gives where a loader gives batches."""
    if isinstance(labels, Number) or (isinstance(labels, Tensor) and labels.ndim == 0):
        raise UserError(
            f"expected batches with labels (N,), got a single example with the label {labels}: "
            "give the loader of a dataset, as in DataLoader(dataset, batch_size=100)."
        )


def _inputs(given: Any, form: BatchForm, batch: Any) -> Inputs:
    if _is_array(given):
        return as_tensor(given, "inputs")
    if isinstance(given, ModelInputs):
        return given
    if isinstance(given, Mapping):
        named = {name: _as_input(name, one) for name, one in given.items()}
        return ModelInputs((), named, form.perturb)
    if isinstance(given, tuple | list) and given and all(_is_array(one) for one in given):
        positional = tuple(_as_input(place, one) for place, one in enumerate(given))
        return ModelInputs(positional, {}, form.perturb)
    raise _form_error(batch)


def _as_input(name: str | int, value: Any) -> Any:
    return as_tensor(value, f"input {name}") if _is_array(value) else value


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | numpy.ndarray) or is_table(value)


def _form_error(batch: object) -> UserError:
    return UserError(
        "expected batches of (inputs, labels), tensors, or mappings with the key labels, got "
        f"{_kind(batch)}: wrap the loader so that it gives such batches."
    )


def _classes(labels: Any) -> tuple[Tensor, Tensor | None]:
    """Return labels as classes (N,), and as distributions (N, C) where they are these."""
    if not _is_array(labels):
        raise UserError(f"expected labels that are a tensor, got {described(labels)}.")
    labels = as_tensor(labels, "labels")
    if labels.is_floating_point() and labels.ndim == 2 and labels.shape[1] > 1:
        sums = labels.double().sum(1)
        if (labels < 0).any() or not torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
            raise UserError(
                "expected soft labels that are probabilities, each row of sum 1, got rows of sums "
                f"{float(sums.min()):g} to {float(sums.max()):g}."
            )
        return labels.argmax(1), labels
    check_integer_labels(labels)
    return labels.long(), None


def check_weights(weights: Any, examples: int) -> Tensor | None:
    """Return one weight per example as a tensor, checked; None stays None."""
    if weights is None:
        return None
    found = as_tensor(weights, "weights")
    if found.shape != (examples,) or not bool((found >= 0).all()):
        below = f", the lowest {float(found.min()):g}" if found.shape == (examples,) else ""
        raise UserError(
            f"expected one weight of 0 or more per example, shape ({examples},), got "
            f"{described(weights)}{below}."
        )
    return found


def check_integer_labels(labels: Tensor) -> None:
    """Refuse labels that are not whole numbers, before they are rounded down."""
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise UserError(f"expected whole-number labels, got {labels.dtype}: use labels.long().")


def _kind(batch: object) -> str:
    name = type(batch).__name__
    if isinstance(batch, tuple | list):
        return f"{name} of {', '.join(type(part).__name__ for part in batch)}"
    return name


def check_reiterable(batches: Batches, role: str) -> None:
    """Refuse before training what is empty or can be iterated only once."""
    check_batches(batches, role)
    if iter(batches) is batches:
        raise UserError(
            f"expected {role} batches that can be iterated more than once, got a "
            f"{type(batches).__name__}: pass a list or a DataLoader."
        )
    if next(iter(batches), None) is None:
        raise UserError(f"expected at least one {role} batch, got none: is the loader empty?")


def shape_of(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def check_batches(batches: object, role: str = "") -> None:
    """Refuse what cannot be batches at all."""
    words = f"{role} batches" if role else "batches"
    if not isinstance(batches, type) and callable(
        getattr(batches, "batches", None)
    ):  # a dataset's part
        raise UserError(
            f"expected {words}, got {type(batches).__name__}: cut it into batches of a size, as in "
            "examples.batches(100, shuffle=True)."
        )
    if isinstance(batches, tuple | list) and batches and all(map(_is_array, batches)):
        raise UserError(
            f"expected {words} of (inputs, labels), got one {type(batches).__name__} of arrays: "
            "make batches of them with falconcal.Examples(inputs, labels).batches(100)."
        )
    iterable = hasattr(type(batches), "__iter__") or hasattr(type(batches), "__getitem__")
    if not iterable or isinstance(batches, str | bytes | Mapping | Tensor | numpy.ndarray | type):
        raise UserError(
            f"expected {words} of (inputs, labels), such as a DataLoader or a list of pairs, got "
            f"{described(batches)}: make batches of arrays with falconcal.Examples(inputs, "
            "labels).batches(100)."
        )
