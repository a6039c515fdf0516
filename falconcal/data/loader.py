"""A loader of one's own, with what cannot be seen in its batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from falconcal.core.batch import Batch, BatchForm, check_batches, read_batch
from falconcal.data.bounds import Bounds
from falconcal.errors import UserError


class Loader:
    """Batches of one's own, with what cannot be seen in them.

    Anything that takes batches takes it: ``fit``, ``predict``, ``evaluate`` and every calibrator.

    Args:
        batches: A ``DataLoader``, or anything that can be iterated more than once.
        labels: The key of the labels, where batches are mappings.
        perturb: The name or position of the input that methods perturb and shifts act on, where
            there is more than one that it could be.
        weights: The key of the examples' weights, or ``"last"`` where they are the last item of a
            tuple; None where there are none.
        bounds: The range of that input, ``falconcal.Bounds`` or None for an unlimited one; left
            out, it is as unknown as before.
        classes: The names of the classes, if they have names.

    Raises:
        UserError: ``batches`` cannot be iterated.

    Example:
        >>> import falconcal, torch
        >>> batch = {"pixels": torch.rand(4, 3), "age": torch.rand(4, 1), "y": torch.arange(4) % 2}
        >>> loader = falconcal.Loader([batch], labels="y", perturb="pixels")
        >>> [len(labels) for inputs, labels in loader]
        [4]
    """

    def __init__(
        self,
        batches: Iterable[Any],
        *,
        labels: str = "labels",
        perturb: str | int | None = None,
        weights: str | None = None,
        bounds: Bounds | Literal["unknown"] | None = "unknown",
        classes: Sequence[str] | None = None,
    ) -> None:
        check_batches(batches)
        self.batches, self.form = batches, BatchForm(labels, perturb, weights)
        self.classes = getattr(batches, "classes", None) if classes is None else tuple(classes)
        if bounds != "unknown":
            self.bounds = bounds
        elif hasattr(batches, "bounds"):
            self.bounds = batches.bounds

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next, where the batches have one."""
        if hasattr(self.batches, "set_epoch"):
            self.batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        if iter(self.batches) is self.batches:
            raise UserError(
                "expected batches that can be iterated more than once, got a "
                f"{type(self.batches).__name__}: pass a list or a DataLoader."
            )
        for batch in self.batches:
            yield read_batch(batch, self.form)
