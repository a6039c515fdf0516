"""A training that is stopped in the middle."""

from falconcal.data import Batches


class StoppedError(Exception):
    """Thrown in the middle of a training."""


class Stopping:
    """Batches that end in an error after so many."""

    def __init__(self, batches: Batches, after: int) -> None:
        self.batches, self.left = batches, after

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.batches, "set_epoch"):
            self.batches.set_epoch(epoch)

    def __iter__(self):  # type: ignore[no-untyped-def]
        for batch in self.batches:
            if self.left == 0:
                raise StoppedError
            self.left -= 1
            yield batch
