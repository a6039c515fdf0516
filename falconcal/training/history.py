"""What happened in training: a record an epoch, for whoever watches."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

import polars

StopReason = Literal["epochs", "patience"]
logger = logging.getLogger("falconcal.training")


@dataclass(frozen=True)
class EpochRecord:
    """What happened in an epoch: the mean of every term, named objective/term."""

    epoch: int  # from 1
    epochs: int
    terms: dict[str, float]
    validation: dict[str, float] = field(default_factory=dict)
    # with the last record alone
    kept: int | None = None  # the epoch whose weights were kept, if it was chosen
    ended: StopReason | None = None  # why: all epochs are done, or none got better for so long


class History(list[EpochRecord]):
    """A list that fills itself: ``with history.recording(): method.fit(...)``."""

    @contextmanager
    def recording(self) -> Iterator["History"]:
        with on_epoch(self.append):
            yield self

    def table(self) -> polars.DataFrame:
        """Return the terms and validation figures as rows of epoch, term and value."""
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
_watchers: ContextVar[tuple[EpochCallback, ...]] = ContextVar("watchers", default=())


@contextmanager
def on_epoch(watcher: EpochCallback) -> Iterator[None]:
    """Call ``watcher`` with a record after every epoch trained inside the ``with``."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def publish(record: EpochRecord) -> None:
    logger.info("epoch %d of %d: %s", record.epoch, record.epochs, record.terms)
    for watcher in _watchers.get():
        watcher(record)
