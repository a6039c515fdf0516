"""What happened in training: one record per epoch, kept in a list or given to a callback."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

import polars
from torch import nn

StopReason = Literal["epochs", "patience"]
epoch_logger = logging.getLogger("falconcal.training")


@dataclass(frozen=True)
class EpochRecord:
    """What happened in one epoch.

    Args:
        epoch: The epoch, counted from 1.
        epochs: The number of epochs that were asked for.
        terms: The mean of every term, by the name objective/term.
        validation: Accuracy and criterion on validation data, where they were computed.
        kept: In the last record, the epoch whose weights were kept, if it was chosen.
        ended: In the last record, why training ended: all epochs are done, or patience ran out.

    Example:
        >>> from falconcal.training import EpochRecord
        >>> record = EpochRecord(1, 20, {"clean/cross_entropy": 2.1})
        >>> record.ended is None
        True
    """

    epoch: int
    epochs: int
    terms: dict[str, float]
    validation: dict[str, float] = field(default_factory=dict)
    kept: int | None = None
    ended: StopReason | None = None


class History(list[EpochRecord]):
    """A list of records that fills itself while models are trained.

    Args:
        iterable: Records to start with, as for any list.

    Example:
        >>> import falconcal
        >>> data, history = falconcal.load_dataset("digits"), falconcal.training.History()
        >>> model = falconcal.make_model("mlp", data)
        >>> with history.recording():
        ...     model = falconcal.L2Dropout(epochs=2).fit(
        ...         model, data.train.batches(50), data.validation
        ...     )
        >>> [record.epoch for record in history]
        [1, 2]
        >>> history.table().columns
        ['epoch', 'term', 'value']
    """

    @contextmanager
    def recording(self) -> Iterator["History"]:
        """Append one record per epoch that is trained inside the ``with``."""
        with on_epoch(self.append):
            yield self

    def table(self) -> polars.DataFrame:
        """Return terms and validation figures as rows of epoch, term and value."""
        rows = [
            (record.epoch, name, value)
            for record in self
            for name, value in (*record.terms.items(), *_prefixed(record.validation))
        ]
        schema = {"epoch": polars.Int64, "term": polars.String, "value": polars.Float64}
        return polars.DataFrame(rows, schema=schema, orient="row")


def _prefixed(validation: dict[str, float]) -> list[tuple[str, float]]:
    return [(f"validation/{name}", value) for name, value in validation.items()]


EpochCallback = Callable[[EpochRecord], None]
_callbacks: ContextVar[tuple[EpochCallback, ...]] = ContextVar("epoch callbacks", default=())


@contextmanager
def on_epoch(callback: EpochCallback) -> Iterator[None]:
    """Call a function with a record after every epoch that is trained inside the ``with``.

    Args:
        callback: Takes an ``EpochRecord``; an error that it raises ends the training.

    Returns:
        A context manager.

    Example:
        >>> import falconcal
        >>> from falconcal.training import on_epoch
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> with on_epoch(lambda record: print("epoch", record.epoch)):
        ...     model = falconcal.L2Dropout(epochs=2).fit(
        ...         model, data.train.batches(50), data.validation
        ...     )
        epoch 1
        epoch 2
    """
    token = _callbacks.set((*_callbacks.get(), callback))
    try:
        yield
    finally:
        _callbacks.reset(token)


def publish(record: EpochRecord) -> None:
    """Log a record and give it to all callbacks."""
    epoch_logger.info("epoch %d of %d: %s", record.epoch, record.epochs, record.terms)
    for callback in _callbacks.get():
        callback(record)


WeightsCallback = Callable[[nn.Module, int], None]
_weights_callbacks: ContextVar[tuple[WeightsCallback, ...]] = ContextVar(
    "weights callbacks", default=()
)


@contextmanager
def on_weights(callback: WeightsCallback) -> Iterator[None]:
    """Call a function with the model and the epoch after every epoch trained in this process.

    The model has the weights that would be kept if training ended there. The callback must leave
    them, and the random numbers, as they are.
    """
    token = _weights_callbacks.set((*_weights_callbacks.get(), callback))
    try:
        yield
    finally:
        _weights_callbacks.reset(token)


def show_weights(model: nn.Module, epoch: int) -> None:
    """Give the model as it is after an epoch to all callbacks."""
    for callback in _weights_callbacks.get():
        callback(model, epoch)
